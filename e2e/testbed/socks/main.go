// Command socks is a SOCKS 5 proxy on loopback that tells on stdout where it was asked to go, one place a line.
//
// It knows names that nobody else does: all that end in .test lead to this machine.
package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"strings"

	"github.com/armon/go-socks5"
	"golang.org/x/net/context"
)

type names struct{ socks5.DNSResolver }

func (n names) Resolve(ctx context.Context, name string) (context.Context, net.IP, error) {
	if strings.HasSuffix(name, ".test") {
		return ctx, net.IPv4(127, 0, 0, 1), nil
	}
	return n.DNSResolver.Resolve(ctx, name)
}

type told struct{}

func (told) Allow(ctx context.Context, request *socks5.Request) (context.Context, bool) {
	host := request.DestAddr.FQDN
	if host == "" {
		host = request.DestAddr.IP.String()
	}
	fmt.Printf("to %s:%d\n", host, request.DestAddr.Port)
	return ctx, true
}

// Arguments: where to listen, then a user; the password is in the environment.
func main() {
	config := &socks5.Config{Resolver: names{}, Rules: told{}, Logger: log.New(os.Stderr, "", 0)}
	if len(os.Args) > 2 {
		config.Credentials = socks5.StaticCredentials{os.Args[2]: os.Getenv("SOCKS_PASSWORD")}
	}
	server, err := socks5.New(config)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.ListenAndServe("tcp", os.Args[1]))
}
