/** Asks for the token once the gateway has. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { get } from "../api/client";
import { ApiError, asApiError } from "../api/errors";
import { session, signIn } from "../api/session";
import type { HealthReport } from "../api/types";

export function Login() {
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);

  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setError(await problem(field.current?.value.trim() ?? ""));
    setBusy(false);
  };
  return (
    <main class="login" id="main">
      <h1>Sign in</h1>
      <p>This gateway asks for a token: one of <code>security.operator_tokens</code> of its configuration.</p>
      <form onSubmit={(event) => void submit(event)}>
        <input type="text" name="username" value="operator" autocomplete="username" hidden readonly aria-hidden="true" />
        <label for="token">Token</label>
        <input id="token" name="token" type="password" autocomplete="current-password" required ref={field} />
        <button type="submit" class="primary" disabled={isBusy}>
          {isBusy ? "Signing in…" : "Sign in"}
        </button>
        <p role="alert" class="error">{error}</p>
      </form>
      <p class="muted">The token stays in the memory of this tab. A reload asks for it again.</p>
    </main>
  );
}

/** Tries the token; what is wrong with it, empty for nothing. */
async function problem(token: string): Promise<string> {
  session.value = { token, isAsked: true };
  try {
    await get<HealthReport>("/operators/health");
  } catch (thrown) {
    const error: ApiError = asApiError(thrown);
    if (error.status === 401) {
      session.value = { token: "", isAsked: true };
      return "The gateway does not know this token.";
    }
    if (error.status === 0) return error.message;
  }
  signIn(token);
  return "";
}
