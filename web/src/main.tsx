import { render } from "preact";
import { App } from "./shell/app";
import { followTheme } from "./shell/theme";

followTheme();
const place = document.getElementById("app");
if (place) render(<App />, place);
