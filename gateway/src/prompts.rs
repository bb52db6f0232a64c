//! Two prompts that users pick in their client: recall a topic, and write a hand-over note. They
//! are plain text that names the tools; listing or getting one fetches no data.

use context_model::Operation;
use rmcp::ErrorData;
use rmcp::model::{
    GetPromptRequestParams, GetPromptResult, Prompt, PromptArgument, PromptMessage, Role,
};

/// The prompts whose tools are all offered, in listing order.
#[must_use]
pub fn list(offers: impl Fn(Operation) -> bool) -> Vec<Prompt> {
    let recall = Prompt::new(
        "recall",
        Some("Find what earlier sessions and other agents stored about a topic"),
        Some(vec![
            PromptArgument::new("topic")
                .with_description("The topic to search for")
                .with_required(true),
            PromptArgument::new("thread_id")
                .with_description("Search only this thread")
                .with_required(false),
        ]),
    )
    .with_title("Recall a topic");
    let handover = Prompt::new(
        "handover",
        Some("Store a note from which the next session can continue"),
        Some(vec![
            PromptArgument::new("thread_id")
                .with_description("The task's thread")
                .with_required(true),
        ]),
    )
    .with_title("Hand over");
    let mut prompts = Vec::new();
    if offers(Operation::HybridSearchContext) && offers(Operation::GetContextByIds) {
        prompts.push(recall);
    }
    if offers(Operation::StoreContext) {
        prompts.push(handover);
    }
    prompts
}

/// The messages of one prompt.
///
/// # Errors
/// -32602 for an unknown prompt, one whose tools are not all offered, and a missing or non-string argument.
pub fn get(
    request: &GetPromptRequestParams,
    offers: impl Fn(Operation) -> bool,
) -> Result<GetPromptResult, ErrorData> {
    let listed = list(offers);
    let is_listed = listed.iter().any(|prompt| prompt.name == request.name);
    let argument = |name: &str| -> Result<Option<&str>, ErrorData> {
        match request
            .arguments
            .as_ref()
            .and_then(|arguments| arguments.get(name))
        {
            None | Some(serde_json::Value::Null) => Ok(None),
            Some(serde_json::Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(ErrorData::invalid_params(
                format!("`{name}` must be a string"),
                None,
            )),
        }
    };
    let required = |name: &str| {
        argument(name)?
            .ok_or_else(|| ErrorData::invalid_params(format!("`{name}` is required"), None))
    };
    let text = match request.name.as_str() {
        "recall" if is_listed => {
            let topic = required("topic")?;
            // Some clients send an optional argument that the user left empty.
            let scope = argument("thread_id")?
                .filter(|id| !id.trim().is_empty())
                .map(|id| format!(" with thread_id {id:?}"))
                .unwrap_or_default();
            format!(
                "Find what is known about: {topic}\n\nCall hybrid_search_context{scope} with two or three different \
                 wordings, read the best entries in full with get_context_by_ids, then summarise what is known, what \
                 was decided and why, and what is open. Give the context ids you used."
            )
        }
        "handover" if is_listed => {
            let thread = required("thread_id")?;
            format!(
                "Write a hand-over note for the session that continues this work: the goal, what is done, what was decided and \
                 why, what is open, and the next step. Store it with store_context: thread_id {thread:?}, source \
                 \"agent\", tags [\"handover\"], metadata {{\"status\": \"active\"}}. Then tell me its context_id."
            )
        }
        other => return Err(unknown(other, &listed)),
    };
    Ok(GetPromptResult::new(vec![PromptMessage::new_text(
        Role::User,
        text,
    )]))
}

fn unknown(name: &str, listed: &[Prompt]) -> ErrorData {
    let shown: String = name.chars().take(64).collect();
    let names: Vec<String> = listed
        .iter()
        .map(|prompt| format!("`{}`", prompt.name))
        .collect();
    let hint = match names.as_slice() {
        [] => "no prompt is offered".to_owned(),
        names => format!("the prompts are {}", names.join(" and ")),
    };
    ErrorData::invalid_params(format!("unknown prompt `{shown}`; {hint}"), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_prompt_can_be_got_with_its_required_arguments() {
        for prompt in list(|_| true) {
            let mut request = GetPromptRequestParams::new(prompt.name.clone());
            assert_eq!(
                get(&request, |_| true).unwrap_err().code.0,
                -32602,
                "{} needs its argument",
                prompt.name
            );
            let arguments = prompt.arguments.unwrap();
            request.arguments = Some(
                arguments
                    .iter()
                    .filter(|a| a.required == Some(true))
                    .map(|a| (a.name.clone(), "x".into()))
                    .collect(),
            );
            assert_eq!(get(&request, |_| true).unwrap().messages.len(), 1);
        }
    }

    #[test]
    fn an_empty_thread_restricts_nothing() {
        let text = |thread: &str| {
            let mut request = GetPromptRequestParams::new("recall");
            let arguments = [("topic", "x"), ("thread_id", thread)];
            request.arguments = Some(
                arguments
                    .map(|(name, value)| (name.to_owned(), value.into()))
                    .into_iter()
                    .collect(),
            );
            format!("{:?}", get(&request, |_| true).unwrap().messages)
        };
        assert!(text("t").contains("with thread_id"));
        assert!(!text(" ").contains("with thread_id"));
    }

    #[test]
    fn an_unknown_prompt_is_refused() {
        let error = get(&GetPromptRequestParams::new("nope"), |_| true).unwrap_err();
        assert_eq!(error.code.0, -32602);
        assert_eq!(
            error.message,
            "unknown prompt `nope`; the prompts are `recall` and `handover`"
        );
    }

    #[test]
    fn a_prompt_is_offered_with_the_tools_that_it_names() {
        let names = |disabled: Operation| -> Vec<String> {
            let listed = list(|tool| tool != disabled);
            listed.into_iter().map(|prompt| prompt.name).collect()
        };
        assert_eq!(names(Operation::DeleteContext), ["recall", "handover"]);
        assert_eq!(names(Operation::HybridSearchContext), ["handover"]);
        assert_eq!(names(Operation::GetContextByIds), ["handover"]);
        assert_eq!(names(Operation::StoreContext), ["recall"]);
        let request = GetPromptRequestParams::new("handover");
        let error = get(&request, |_| false).unwrap_err();
        assert_eq!(
            error.message,
            "unknown prompt `handover`; no prompt is offered"
        );
    }
}
