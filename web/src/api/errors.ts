/** What the API refuses, and what a reader can do about it. */
export interface Detail {
  "@type"?: string;
  [name: string]: unknown;
}

export class ApiError extends Error {
  constructor(
    /** The HTTP status; 0 where there is no answer. */
    readonly status: number,
    readonly reason: string,
    message: string,
    readonly details: Detail[] = [],
  ) {
    super(message);
  }

  /** Whether the same call may succeed later. */
  get mayPass(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }

  get advice(): string {
    const { status } = this;
    if (status === 0) return "Check that the gateway runs and that this machine reaches it. The page tries again.";
    if (status === 401) return "Sign in with a token of security.operator_tokens.";
    if (status === 403) return "Sign in with an operator's token: this one does not open this.";
    if (status === 404) return "Check the id. What has ended is removed after its retention.";
    if (status === 429) return "The gateway is busy. The page tries again.";
    if (status >= 500) return "A service does not answer. See the health of the components; the page tries again.";
    return "Correct what the message names, and try again.";
  }
}

/** What was thrown, as an error of the API. */
export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError(-1, "PAGE", error instanceof Error ? error.message : String(error));
}
