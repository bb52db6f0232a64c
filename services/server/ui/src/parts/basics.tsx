// The small parts that every view is made of.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import type { ApiError } from "../api";
import { ago, fullTime } from "../format";
import { useNow } from "../hooks";

const PATHS: Record<string, string> = {
  activity: "M3 12h4l3-8 4 16 3-8h4",
  threads: "M4 5h16v10H10l-5 4v-4H4z",
  search: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M15.5 15.5 21 21",
  artifacts: "M6 3h8l4 4v14H6zM14 3v4h4M9 12h6M9 16h6",
  health: "M4 20V10M10 20V4M16 20v-7M21 20H3",
  connect: "M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0zM12 17v4",
  keys: "M8 15a4 4 0 1 1 3.5-5.9L21 9v4h-2v3h-3v-3h-4.5A4 4 0 0 1 8 15z",
  copy: "M9 9h11v12H9zM5 15H4V3h11v2",
  link: "M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.7-5.7L12 7M14 10a4 4 0 0 0-6-.4l-3 3A4 4 0 0 0 10.700 18.300L12 17",
  edit: "M4 20l1-5L16 4l4 4L9 19z",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 14h10l1-14",
  pause: "M8 5v14M16 5v14",
  play: "M7 4l13 8-13 8z",
  image: "M3 5h18v14H3zM3 16l5-5 4 4 3-3 6 6M15 9h.01",
  back: "M15 5l-7 7 7 7",
  close: "M6 6l12 12M18 6 6 18",
  plus: "M12 5v14M5 12h14",
  restore: "M4 4v6h6M4.500 10a8 8 0 1 1-.4 4",
  out: "M14 4H5v16h9M10 12h11M17 8l4 4-4 4",
  filter: "M4 6h16M7 12h10M10 18h4",
  warn: "M12 4 2.500 20h19zM12 10v4M12 17h.01",
};

export function Icon({ name }: { name: string }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name] ?? ""} />
    </svg>
  );
}

export function Time({ at }: { at: string }) {
  const now = useNow();
  return (
    <time dateTime={at} title={fullTime(at)}>
      {ago(at, now)}
    </time>
  );
}

interface ButtonProps {
  icon?: string;
  children?: ComponentChildren;
  /** The accessible name, when only the icon is shown. */
  label?: string;
  tone?: "plain" | "main" | "danger" | "quiet";
  small?: boolean;
  type?: "button" | "submit";
  disabled?: boolean;
  pressed?: boolean;
  expanded?: boolean;
  onClick?: () => void;
}

export function Button(given: ButtonProps) {
  const { icon, children, label, tone = "plain", small, type = "button", disabled, pressed, expanded, onClick } = given;
  return (
    <button
      type={type}
      class={`button ${tone}${small ? " small" : ""}${children === undefined ? " bare" : ""}`}
      disabled={disabled}
      aria-label={label}
      title={children === undefined ? label : undefined}
      aria-pressed={pressed}
      aria-expanded={expanded}
      onClick={onClick}
    >
      {icon !== undefined && <Icon name={icon} />}
      {children !== undefined && <span>{children}</span>}
    </button>
  );
}

/** Copies a text to the clipboard, and says whether that worked. */
export function Copy({ text, label = "Copy", bare = false }: { text: string; label?: string; bare?: boolean }) {
  const [outcome, setOutcome] = useState("");
  useEffect(() => {
    if (outcome === "") return;
    const timer = setTimeout(() => setOutcome(""), 2_000);
    return () => clearTimeout(timer);
  }, [outcome]);
  const copy = async () => setOutcome((await write(text)) ? "Copied" : "Not copied");
  return (
    <span class="copy">
      <Button small tone="quiet" icon="copy" label={bare ? label : undefined} onClick={() => void copy()}>
        {bare ? undefined : outcome || label}
      </Button>
      <span class="unseen" role="status">
        {outcome}
      </span>
    </span>
  );
}

/** Whether the text is in the clipboard now. */
async function write(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without TLS, browsers have no clipboard object, unless the service is on the same machine.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "unseen";
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}

/** A text to copy, in a box that scrolls. */
export function Code({ text, name, children }: { text: string; name: string; children?: ComponentChildren }) {
  return (
    <figure class="code">
      <figcaption>
        <span>{name}</span>
        {children}
        <Copy text={text} />
      </figcaption>
      <pre tabIndex={0} aria-label={name}>
        {text}
      </pre>
    </figure>
  );
}

/** One line about a failed call, and what the user can do. */
export function Trouble({ error, again }: { error: ApiError; again?: () => void }) {
  return (
    <p class="trouble" role="alert">
      <Icon name="warn" />
      <span>{error.message}</span>
      {again && (
        <Button small onClick={again}>
          Try again
        </Button>
      )}
    </p>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="title">{title}</p>
      {children}
    </div>
  );
}

/** Grey lines in place of what is being loaded. Invisible at first, so that a quick response does not flicker. */
export function Waiting({ rows = 4 }: { rows?: number }) {
  return (
    <div class="waiting" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, i) => (
        <div key={i} />
      ))}
    </div>
  );
}

/** A bar from 0 to 1. It is hidden from screen readers, because its value is beside it as text. */
export function Bar({ value, tone = "accent" }: { value: number; tone?: string }) {
  const share = Number.isFinite(value) ? Math.min(Math.max(value, 0), 1) : 0;
  return (
    <svg class={`bar ${tone}`} viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
      <rect class="track" width="100" height="6" />
      <rect class="fill" width={share * 100} height="6" />
    </svg>
  );
}

interface Choice<T extends string> {
  value: T;
  label: string;
  hint?: string | undefined;
  disabled?: boolean;
}

/** A choice of one among a few visible options. */
export function Choices<T extends string>({
  name,
  label,
  value,
  choices,
  onChange,
}: {
  name: string;
  label: string;
  value: T;
  choices: Choice<T>[];
  onChange: (value: T) => void;
}) {
  return (
    <fieldset class="choices">
      <legend class="unseen">{label}</legend>
      {choices.map((choice) => (
        <label key={choice.value} title={choice.hint} class={choice.disabled ? "off" : undefined}>
          <input
            type="radio"
            name={name}
            value={choice.value}
            checked={choice.value === value}
            disabled={choice.disabled}
            onChange={() => onChange(choice.value)}
          />
          <span>{choice.label}</span>
        </label>
      ))}
    </fieldset>
  );
}

interface FieldProps {
  label: string;
  hint?: string;
  children: ComponentChildren;
}

export function Field({ label, hint, children }: FieldProps) {
  return (
    <label class="field">
      <span class="name">
        {label}
        {hint !== undefined && <small>{hint}</small>}
      </span>
      {children}
    </label>
  );
}

export const inputValue = (event: { currentTarget: { value: string } }): string => event.currentTarget.value;

/** Calls back when it becomes visible, for lists that then load more. */
export function Sentinel({ onSeen }: { onSeen: () => void }) {
  const element = useRef<HTMLDivElement>(null);
  const seen = useRef(onSeen);
  seen.current = onSeen;
  useEffect(() => {
    const observer = new IntersectionObserver((all) => all.some((one) => one.isIntersecting) && seen.current(), {
      rootMargin: "400px",
    });
    if (element.current) observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return <div ref={element} class="sentinel" />;
}

/** The heading of a view. Gets the focus when the view is opened, so that a screen reader begins here. */
export function Head({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <header class="head">
      <h1 tabIndex={-1}>{title}</h1>
      {children}
    </header>
  );
}
