/** The frame around every page: header, navigation, the page itself. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { session, signOut } from "../api/session";
import { PAGES } from "../pages/index";
import { NotFound } from "../pages/not_found";
import { useStore } from "../store";
import { Announcements } from "./announce";
import { Login } from "./login";
import { isReadOnly } from "./mode";
import { Nav } from "./nav";
import { route } from "./route";
import { Search } from "./search";
import { type Theme, theme, THEMES } from "./theme";

export function App() {
  const { isAsked, token } = useStore(session);
  const [isSearching, setSearching] = useState(false);
  useShortcuts(() => setSearching(true));
  return (
    <>
      <header>
        <a class="skip" href={location.hash || "#/"} onClick={toContent}>
          Skip to the content
        </a>
        <a class="brand" href="#/">
          FetchBox
        </a>
        {isReadOnly && <span class="badge">read only</span>}
        <button type="button" class="search" onClick={() => setSearching(true)}>
          Search <kbd>/</kbd>
        </button>
        <ThemeChoice />
        {token && (
          <button type="button" onClick={signOut}>
            Sign out
          </button>
        )}
      </header>
      {isAsked ? <Login /> : <Body />}
      <Announcements />
      {isSearching && <Search close={() => setSearching(false)} />}
    </>
  );
}

function Body() {
  const here = useStore(route);
  const key = here.path.map(encodeURIComponent).join("/");
  const first = useRef(true);
  useEffect(() => {
    const heading = document.querySelector<HTMLElement>("main h1");
    document.title = heading ? `${heading.innerText} · FetchBox` : "FetchBox";
    if (!first.current) heading?.focus();
    first.current = false;
  }, [key]);
  const Page = PAGES[here.path[0] ?? ""] ?? NotFound;
  return (
    <div class="body">
      <Nav />
      <main id="main" tabIndex={-1}>
        <Page key={key} route={here} />
      </main>
    </div>
  );
}

function ThemeChoice() {
  const chosen = useStore(theme);
  return (
    <label class="theme">
      <span class="unseen">Colours</span>
      <select value={chosen} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
        {THEMES.map((one) => (
          <option key={one} value={one}>
            {one}
          </option>
        ))}
      </select>
    </label>
  );
}

function toContent(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

/** `/` and Ctrl-K search, but not while somebody types. */
function useShortcuts(search: () => void): void {
  useLayoutEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      const target = event.target as HTMLElement;
      const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
      const isSearch = event.key.toLowerCase() === "k" ? event.ctrlKey || event.metaKey : event.key === "/" && !isTyping;
      if (!isSearch || document.querySelector("dialog[open]") || session.value.isAsked) return;
      event.preventDefault();
      search();
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
}
