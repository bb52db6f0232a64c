// Shown when the session of a page that `context-gateway open` opened has ended.

import { useEffect, useRef } from "preact/hooks";

import { Code } from "../parts/basics";

export function Closed() {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = "Closed · Context";
    heading.current?.focus();
    // A new link, pasted into this tab, changes only what follows the #.
    const begin = () => location.reload();
    addEventListener("hashchange", begin);
    return () => removeEventListener("hashchange", begin);
  }, []);
  return (
    <main class="signin" id="main">
      <div class="box">
        <h1 ref={heading} tabIndex={-1}>
          This page is closed
        </h1>
        <p>Its link works once, for five minutes, and what it opened is gone after a reload. Nothing that you saved is lost.</p>
        <Code name="Open it again" text="context-gateway open" />
      </div>
    </main>
  );
}
