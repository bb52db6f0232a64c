//! Words too common to search for, per language, in the folded form that the analyzer produces.

use crate::Language;

impl Language {
    /// Whether the word is so common in this language that a search with other words ignores it. `word` must be
    /// completely folded (see [`crate::fold`]).
    ///
    /// The analyzer splits contractions, so the list holds their pieces: `don't` is `don` and `t`.
    pub fn is_stop_word(self, word: &str) -> bool {
        of(self).contains(&word)
    }
}

/// The stop words of a language, completely folded. Empty for a language without a list.
fn of(language: Language) -> &'static [&'static str] {
    match language {
        Language::English => ENGLISH,
        Language::German => GERMAN,
        Language::French => FRENCH,
        Language::Spanish => SPANISH,
        Language::Italian => ITALIAN,
        Language::Portuguese => PORTUGUESE,
        Language::Dutch => DUTCH,
        Language::Swedish => SWEDISH,
        Language::Norwegian => NORWEGIAN,
        Language::Danish => DANISH,
        Language::Finnish => FINNISH,
        Language::Russian => RUSSIAN,
        Language::Turkish => TURKISH,
        Language::Arabic
        | Language::Greek
        | Language::Hungarian
        | Language::Romanian
        | Language::Tamil
        | Language::Unstemmed => &[],
    }
}

#[rustfmt::skip]
const ENGLISH: &[&str] = &[
    "a", "about", "above", "after", "again", "against", "ain", "all", "am", "an", "and", "any",
    "are", "aren", "as", "at", "be", "because", "been", "before", "being", "below", "between",
    "both", "but", "by", "can", "couldn", "could", "d", "did", "didn", "do", "does", "doesn",
    "doing", "don", "down", "during", "each", "few", "for", "from", "further", "had", "hadn",
    "has", "hasn", "have", "haven", "having", "he", "her", "here", "hers", "herself", "him",
    "himself", "his", "how", "i", "if", "in", "into", "is", "isn", "it", "its", "itself", "just",
    "ll", "m", "me", "more", "most", "mustn", "my", "myself", "no", "nor", "not", "now", "of",
    "off", "on", "once", "only", "or", "other", "our", "ours", "ourselves", "out", "over", "own",
    "re", "s", "same", "she", "should", "shouldn", "so", "some", "such", "t", "than", "that",
    "the", "their", "theirs", "them", "themselves", "then", "there", "these", "they", "this",
    "those", "through", "to", "too", "under", "until", "up", "ve", "very", "was", "wasn", "we",
    "were", "weren", "what", "when", "where", "which", "while", "who", "whom", "why", "will",
    "with", "would", "wouldn", "you", "your", "yours", "yourself", "yourselves",
];

#[rustfmt::skip]
const GERMAN: &[&str] = &[
    "aber", "alle", "allem", "allen", "aller", "alles", "als", "also", "am", "an", "ander",
    "andere", "anderem", "anderen", "anderer", "anderes", "auch", "auf", "aus", "bei", "bin",
    "bis", "bist", "da", "damit", "dann", "das", "dass", "dein", "deine", "dem", "den", "denn",
    "der", "des", "dich", "die", "dies", "diese", "diesem", "diesen", "dieser", "dieses", "dir",
    "doch", "dort", "du", "durch", "ein", "eine", "einem", "einen", "einer", "eines", "er", "es",
    "etwas", "euch", "euer", "eure", "fur", "gegen", "hab", "habe", "haben", "hat", "hatte",
    "hatten", "hier", "hin", "hinter", "ich", "ihm", "ihn", "ihnen", "ihr", "ihre", "ihrem",
    "ihren", "ihrer", "im", "in", "ins", "ist", "ja", "jede", "jedem", "jeden", "jeder", "jedes",
    "jene", "jener", "jetzt", "kann", "kein", "keine", "keinem", "keinen", "keiner", "konnte",
    "machen", "man", "manche", "mein", "meine", "meinem", "meinen", "meiner", "mich", "mir",
    "mit", "muss", "musste", "nach", "nicht", "nichts", "noch", "nun", "nur", "ob", "oder",
    "ohne", "sehr", "sein", "seine", "seinem", "seinen", "seiner", "selbst", "sich", "sie",
    "sind", "so", "solche", "soll", "sollte", "sondern", "sonst", "uber", "um", "und", "uns",
    "unser", "unsere", "unter", "viel", "vom", "von", "vor", "wahrend", "war", "waren", "warst",
    "was", "weg", "weil", "weiter", "welche", "welchem", "welchen", "welcher", "welches", "wenn",
    "wer", "werde", "werden", "wie", "wieder", "will", "wir", "wird", "wo", "wollen", "wollte",
    "wurde", "wurden", "zu", "zum", "zur", "zwar", "zwischen",
];

#[rustfmt::skip]
const FRENCH: &[&str] = &[
    "a", "ai", "aie", "ait", "as", "au", "aux", "avait", "avec", "avez", "avoir", "avons", "c",
    "ce", "ces", "cet", "cette", "comme", "d", "dans", "de", "des", "du", "elle", "elles", "en",
    "es", "est", "et", "etaient", "etait", "etant", "etes", "etre", "eu", "eux", "fut",
    "il", "ils", "j", "je", "l", "la", "le", "les", "leur", "leurs", "lui", "m", "ma", "mais",
    "me", "meme", "mes", "moi", "mon", "n", "ne", "nos", "notre", "nous", "on", "ont", "ou",
    "par", "pas", "pour", "qu", "que", "quel", "quelle", "quelles", "quels", "qui", "s", "sa",
    "sans", "se", "sera", "ses", "si", "soi", "sommes", "son", "sont", "suis", "sur", "t", "ta",
    "te", "tes", "toi", "ton", "tu", "un", "une", "vos", "votre", "vous", "y",
];

#[rustfmt::skip]
const SPANISH: &[&str] = &[
    "a", "al", "algo", "ante", "antes", "como", "con", "contra", "cual", "cuando", "de", "del",
    "desde", "donde", "durante", "e", "el", "ella", "ellas", "ellos", "en", "entre", "era",
    "eran", "eres", "es", "esa", "esas", "ese", "eso", "esos", "esta", "estaba", "estan",
    "estar", "estas", "este", "esto", "estos", "estoy", "fue", "fueron", "ha", "habia", "han",
    "has", "hasta", "hay", "he", "la", "las", "le", "les", "lo", "los", "mas", "me", "mi", "mis",
    "mucho", "muy", "nada", "ni", "no", "nos", "nosotros", "nuestra", "nuestro", "o", "os",
    "otra", "otro", "para", "pero", "poco", "por", "porque", "que", "quien", "se", "sea", "ser",
    "si", "sin", "sobre", "son", "soy", "su", "sus", "tambien", "tanto", "te", "tener", "tengo",
    "ti", "tiene", "todo", "todos", "tu", "tus", "un", "una", "uno", "unos", "vosotros", "y",
    "ya", "yo",
];

#[rustfmt::skip]
const ITALIAN: &[&str] = &[
    "a", "abbiamo", "ad", "agli", "ai", "al", "alla", "alle", "allo", "anche", "avere", "c",
    "che", "chi", "ci", "come", "con", "contro", "cui", "da", "dagli", "dai", "dal", "dalla",
    "dalle", "de", "degli", "dei", "del", "della", "delle", "dello", "di", "dove", "e", "ed",
    "era", "erano", "essere", "fu", "gli", "ha", "hai", "hanno", "ho", "i", "il", "in", "io",
    "l", "la", "le", "lei", "li", "lo", "loro", "lui", "ma", "mi", "mia", "mio", "ne", "negli",
    "nei", "nel", "nella", "nelle", "noi", "non", "nostro", "o", "per", "perche", "piu",
    "quale", "quando", "quella", "quelle", "quelli", "quello", "questa", "queste", "questi",
    "questo", "se", "sei", "si", "sia", "siamo", "sono", "sta", "su", "sua", "sue", "sugli",
    "sui", "sul", "sulla", "suo", "ti", "tra", "tu", "tua", "tuo", "tutti", "tutto", "un",
    "una", "uno", "vi", "voi",
];

#[rustfmt::skip]
const PORTUGUESE: &[&str] = &[
    "a", "ao", "aos", "aquela", "aquele", "aquilo", "as", "ate", "com", "como", "da", "das",
    "de", "dela", "dele", "deles", "depois", "do", "dos", "e", "ela", "elas", "ele", "eles",
    "em", "entre", "era", "eram", "essa", "esse", "esta", "estao", "estar", "estava", "este",
    "eu", "foi", "foram", "ha", "isso", "isto", "ja", "lhe", "mais", "mas", "me", "mesmo",
    "meu", "meus", "minha", "muito", "na", "nao", "nas", "nem", "no", "nos", "nossa", "nosso",
    "num", "numa", "o", "os", "ou", "para", "pela", "pelo", "por", "qual", "quando", "que",
    "quem", "sao", "se", "seja", "sem", "ser", "seu", "seus", "so", "sou", "sua", "suas",
    "tambem", "te", "tem", "ter", "tinha", "tu", "tua", "um", "uma", "voce", "voces",
];

#[rustfmt::skip]
const DUTCH: &[&str] = &[
    "aan", "al", "alles", "als", "andere", "ben", "bij", "daar", "dan", "dat", "de", "der",
    "deze", "die", "dit", "doch", "doen", "door", "dus", "een", "eens", "en", "er", "ge", "geen",
    "had", "heb", "hebben", "heeft", "hem", "het", "hier", "hij", "hoe", "hun", "iemand",
    "iets", "ik", "in", "is", "ja", "je", "kan", "kon", "maar", "me", "meer", "men", "met",
    "mij", "mijn", "moet", "na", "naar", "niet", "niets", "nog", "nu", "of", "om", "omdat",
    "onder", "ons", "ook", "op", "over", "reeds", "te", "tegen", "toch", "toen", "tot", "u",
    "uit", "uw", "van", "veel", "voor", "want", "waren", "was", "wat", "werd", "wezen", "wie",
    "wil", "worden", "wordt", "zal", "ze", "zich", "zij", "zijn", "zo", "zonder", "zou",
];

#[rustfmt::skip]
const SWEDISH: &[&str] = &[
    "alla", "allt", "an", "ar", "att", "av", "blev", "bli", "blir", "da", "dar", "de", "dem",
    "den", "denna", "deras", "dess", "det", "detta", "dig", "din", "ditt", "dom", "du", "efter",
    "ej", "eller", "en", "er", "ett", "fran", "for", "ha", "hade", "han", "hans", "har", "henne",
    "hennes", "hon", "honom", "hur", "i", "icke", "in", "inom", "inte", "jag", "ju", "kan",
    "man", "med", "mellan", "men", "mig", "min", "mitt", "mot", "mycket", "ni", "nu", "nar",
    "nagon", "nagot", "och", "om", "oss", "pa", "sa", "samma", "sedan", "sig", "sin", "sina",
    "sitt", "sjalv", "skulle", "som", "till", "under", "upp", "ut", "utan", "vad", "var", "vara",
    "varit", "vem", "vi", "vid", "vilken", "ska", "over",
];

#[rustfmt::skip]
const NORWEGIAN: &[&str] = &[
    "alle", "at", "av", "bare", "begge", "ble", "bli", "blir", "da", "de", "deg", "dem", "den",
    "denne", "der", "dere", "deres", "det", "dette", "din", "disse", "dit", "du", "eller", "en",
    "er", "et", "etter", "for", "fra", "fordi", "ha", "hadde", "han", "hans", "har", "hennes",
    "her", "hun", "hva", "hvem", "hver", "hvilken", "hvis", "hvor", "hvordan", "hvorfor", "i",
    "ikke", "inn", "jeg", "kan", "man", "med", "meg", "mellom", "men", "min", "mot", "mye", "na",
    "nar", "noe", "noen", "og", "ogsa", "om", "opp", "oss", "over", "pa", "sa", "samme", "seg",
    "selv", "sin", "sitt", "skal", "skulle", "slik", "som", "til", "under", "ut", "uten", "var",
    "ved", "vi", "vil", "ville", "vare", "vaere", "vart",
];

#[rustfmt::skip]
const DANISH: &[&str] = &[
    "ad", "af", "alle", "alt", "anden", "at", "blev", "blive", "bliver", "da", "de", "dem",
    "den", "denne", "der", "deres", "det", "dette", "dig", "din", "disse", "dog", "du", "efter",
    "eller", "en", "end", "er", "et", "for", "fra", "ham", "han", "hans", "har", "havde", "have",
    "hende", "hendes", "her", "hos", "hun", "hvad", "hvis", "hvor", "i", "ikke", "ind", "jeg",
    "jer", "jo", "kunne", "man", "mange", "med", "meget", "men", "mig", "min", "mine", "mit",
    "mod", "ned", "noget", "nogle", "nu", "nar", "og", "ogsa", "om", "op", "os", "over", "pa",
    "selv", "sig", "sin", "sit", "skal", "skulle", "som", "sadan", "thi", "til", "ud", "under",
    "var", "vi", "vil", "ville", "vor", "vaere", "vaeret",
];

#[rustfmt::skip]
const FINNISH: &[&str] = &[
    "ei", "eika", "en", "et", "etta", "han", "he", "hanen", "ja", "joka", "jos", "jotka", "kanssa",
    "koska", "kuin", "kuka", "kun", "me", "mika", "mina", "mitka", "mukaan", "mutta", "myos", "ne",
    "niin", "nuo", "nyt", "oli", "olla", "olen", "on", "ovat", "se", "sen", "seka", "sina", "siis",
    "tai", "tama", "te", "tuo", "vaan", "vaikka", "voi",
];

#[rustfmt::skip]
const RUSSIAN: &[&str] = &[
    "а", "без", "более", "бы", "был", "была", "были", "было", "быть", "в", "вам", "вас", "весь",
    "во", "вот", "все", "всего", "всех", "вы", "где", "да", "для", "до", "его", "ее", "если",
    "есть", "еще", "же", "за", "и", "из", "или", "им", "их", "к", "как", "ко", "когда", "которые",
    "который", "кто", "ли", "либо", "мне", "может", "мы", "на", "над", "не", "него", "нее", "нет",
    "ни", "них", "но", "ну", "о", "об", "он", "она", "они", "оно", "от", "по", "под", "при", "про",
    "с", "со", "так", "такой", "там", "те", "тем", "то", "того", "тоже", "только", "том", "тот",
    "ты", "у", "уже", "что", "чтобы", "чье", "эта", "эти", "это", "этого", "этой", "этом", "этот",
    "я",
];

#[rustfmt::skip]
const TURKISH: &[&str] = &[
    "acaba", "ama", "ancak", "bana", "bazi", "ben", "beni", "benim", "bir", "biz", "bize", "bu",
    "cok", "cunku", "da", "daha", "de", "defa", "diye", "eger", "en", "gibi", "hem", "hep",
    "hepsi", "her", "hic", "icin", "ile", "ise", "kez", "ki", "kim", "mi", "mu", "nasil", "ne",
    "neden", "nerede", "niye", "o", "onlar", "onu", "sanki", "sen", "siz", "su", "tum", "ve",
    "veya", "ya", "yani",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stop_word_is_written_as_the_analyzer_folds_it() {
        for language in Language::ALL {
            for word in of(language) {
                assert_eq!(crate::fold(word), *word, "{language:?}");
            }
        }
    }
}
