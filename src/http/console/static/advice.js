// Actions that fit the state of a lock. Each is a command line for an operator.

import { command, coarse, holderName, now } from "./format.js";

/** Time without a change of the holder after which a break is mentioned first. */
const LONG_HOLD = 3_600_000;

/** Returns the suggested actions, the most useful one first. */
export function adviceFor({ lock, diagnosis, waiters, health }) {
  const run = (verb, ...rest) => command(verb, lock, health, ...rest);
  const holder = lock.holder ? holderName(lock.holder) : "the holder";
  const follow = {
    title: "Follow this lock",
    text: "Prints each change until you stop it.",
    command: run("watch"),
  };
  if (health.unavailable !== null && lock.state !== "held") {
    return [{
      title: "Check the daemon's access to its storage",
      text: "The store grants no lock at the moment. The check names the cause and its fix.",
      command: "leasehold doctor",
    }, follow];
  }
  if (lock.state === "ending") {
    return [{
      title: "Wait, or stop the former holder",
      text: `The grant is lost. The lock is free when ${holder} releases it, or in ${coarse(Math.max(0, (lock.ends ?? now()) - now()))}.`,
      command: null,
    }, follow];
  }
  if (diagnosis === "frozen") {
    return [{
      title: "Repair the lock's record",
      text: "Its record in the storage account is invalid, so that no token can be issued. The section on frozen locks in docs/troubleshooting.md has the steps.",
      command: run("get", "--verbose"),
    }];
  }
  if (diagnosis === "waiters_disconnected") {
    return [{
      title: "Check the waiting clients",
      text: "None of them has a stream, so that none can be granted the lock.",
      command: null,
    }, follow];
  }
  if (lock.state === "free" || lock.state === "waiting") {
    return lock.waiting > 0 ? [follow] : [{
      title: "Acquire it",
      text: "Runs a program while it holds the lock.",
      command: `${run("lock")} -- true`,
    }, follow];
  }
  const actions = [];
  if (lock.state === "silent") {
    actions.push({
      title: "Check the holder's process and network",
      text: `${holder} has no stream. Unless it returns, its session expires in ${coarse(Math.max(0, (lock.ends ?? now()) - now()))}, and the lock passes on.`,
      command: null,
    });
  }
  if (lock.state === "at_risk") {
    actions.push({
      title: "Check the daemon's access to its storage",
      text: "Renewals fail. Unless one succeeds in time, the grant is lost.",
      command: "leasehold doctor",
    });
  }
  if (lock.election) {
    actions.push({
      title: "Ask the leader to step down",
      text: `${holder} finishes its work and resigns; another candidate leads. Prefer this to a break.`,
      command: run("step-down", "--reason", "REASON"),
    });
  }
  const isStuck = lock.waiting > 0 || (lock.since !== null && now() - lock.since > LONG_HOLD);
  actions.push({
    title: lock.state === "peer" ? "Break the peer's lease" : "Break the lock",
    text: `Ends the grant of ${holder} without its consent. It is notified; work without the fencing token may still reach your resources.${isStuck ? "" : " Nothing waits for this lock now."}`,
    command: run("break", "--reason", "REASON"),
    danger: true,
  });
  if (waiters.length > 0 || lock.state === "peer") actions.push(follow);
  return actions;
}
