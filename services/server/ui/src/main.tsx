import { render } from "preact";

import { Page } from "./app";
import "./app.css";

const root = document.getElementById("app");
if (root) render(<Page />, root);
