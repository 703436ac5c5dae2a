#!/bin/sh
# Answers the open LifecycleEvents of a key in a namespace, once: lifecycle-handler.sh NAMESPACE KEY COMMAND
#
# COMMAND is run for each event with its parameters as JSON on stdin; its exit status is the answer, its output the message.
# It needs kubectl, the verbs list on lifecycleevents and patch on lifecycleevents/status in the namespace, and the verb handle
# on the Lifecycle. Run it from a CronJob, or in a loop.
set -eu
namespace=$1 key=$2 check=$3
user=$(kubectl auth whoami -o 'jsonpath={.status.userInfo.username}')
kubectl -n "$namespace" get lifecycleevents -l "lifecycle.windlass.dev/key=$key" \
  -o 'jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.status.phase}{"\n"}{end}' |
while read -r name uid phase; do
  case $phase in '' | Pending | Running) ;; *) continue ;; esac
  parameters=$(kubectl -n "$namespace" get lifecycleevent "$name" -o 'jsonpath={.spec.parameters}')
  if message=$(printf '%s' "$parameters" | sh -c "$check" 2>&1); then answer=Succeeded; else answer=Failed; fi
  # A message is one line without quotes, so that it can stand in JSON as it is.
  message=$(printf '%s' "$message" | tr -d '"\\' | tr '\n\t' '  ' | cut -c1-500)
  kubectl -n "$namespace" patch lifecycleevent "$name" --subresource=status --type=merge -p \
    "{\"metadata\":{\"uid\":\"$uid\"},\"status\":{\"phase\":\"$answer\",\"answeredBy\":\"$user\",\"message\":\"$message\"}}"
done
