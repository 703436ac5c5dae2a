#!/bin/sh
set -eu
	echo "tab at the start"
echo '<html>' & # ampersand
