#!/bin/bash
export BROKER_ID="${HOSTNAME##*-}"
exec /opt/queue/start --override "broker.id=$BROKER_ID" $@
