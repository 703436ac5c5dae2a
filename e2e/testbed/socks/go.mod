module windlass.dev/testbed/socks

go 1.26.0

require (
	github.com/armon/go-socks5 v0.0.0-20160902184237-e75332964ef5
	golang.org/x/net v0.62.0
)
