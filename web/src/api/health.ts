/** The health of the components; 503 carries the same report as a detail. */
import { get } from "./client";
import { ApiError } from "./errors";
import type { HealthReport } from "./types";

export async function readHealth(signal: AbortSignal): Promise<HealthReport> {
  try {
    return await get<HealthReport>("/operators/health", {}, signal);
  } catch (error) {
    const report = error instanceof ApiError && error.details.find((one) => one["@type"]?.endsWith("HealthReport"));
    if (report) return report as unknown as HealthReport;
    throw error;
  }
}
