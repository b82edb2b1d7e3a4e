/** Who may approve calls: the choices in forms, and the values of `approval_by`. */

export type ApproversChoice = "default" | "admin" | "client" | "both" | "nobody";

export const APPROVERS_OPTIONS = [
  { value: "default", label: "Default" },
  { value: "admin", label: "Administrator" },
  { value: "client", label: "User of the client" },
  { value: "both", label: "Administrator or user of the client" },
  { value: "nobody", label: "Nobody" },
] as const satisfies readonly { value: ApproversChoice; label: string }[];

export const APPROVERS_HINT =
  "Who decides on calls that need approval. With Nobody, such calls are denied. Rules, server and key restrict one another.";

/** Converts a choice to the value of `approval_by`; null stands for the default. */
export function toApprovers(choice: ApproversChoice): string[] | null {
  switch (choice) {
    case "default":
      return null;
    case "admin":
    case "client":
      return [choice];
    case "both":
      return ["admin", "client"];
    case "nobody":
      return [];
  }
}

export function toApproversChoice(approvers: readonly string[] | null | undefined): ApproversChoice {
  if (approvers === null || approvers === undefined) {
    return "default";
  }
  const [admin, client] = [approvers.includes("admin"), approvers.includes("client")];
  if (admin && client) {
    return "both";
  }
  return admin ? "admin" : client ? "client" : "nobody";
}
