/** Light or dark: as the system has it, unless the reader chooses. The choice is no secret, so the browser keeps it. */
import { Store } from "../store";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "fetchbox.theme";

export const theme = new Store<Theme>(kept());

function kept(): Theme {
  try {
    const found = localStorage.getItem(KEY);
    return THEMES.find((one) => one === found) ?? "system";
  } catch {
    return "system";
  }
}

export function followTheme(): void {
  const show = (): void => {
    if (theme.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme.value;
  };
  theme.subscribe(() => {
    show();
    try {
      localStorage.setItem(KEY, theme.value);
    } catch {
      // A browser without storage forgets the choice.
    }
  });
  show();
}
