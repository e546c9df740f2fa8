package broker

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// targetOf converts the address of a broker to gRPC's form. Source of unix and tcp: SPIFFE Broker
// Endpoint §4. The form dns:///host:port is gRPC's own; its host may be the name of a Service.
func targetOf(endpoint string) (string, error) {
	malformed := fmt.Errorf("%q is not unix:///path/of/a.sock, tcp://ip:port or dns:///host:port", endpoint)
	u, err := url.Parse(endpoint)
	if err != nil || u.Opaque != "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", malformed
	}
	switch u.Scheme {
	case "unix":
		if u.Host == "" && len(u.Path) > 1 && !strings.HasSuffix(u.Path, "/") {
			return "unix://" + u.Path, nil
		}
	case "tcp":
		address, err := netip.ParseAddrPort(u.Host)
		if err == nil && address.Port() != 0 && u.Path == "" {
			return "passthrough:///" + address.String(), nil
		}
	case "dns":
		host, port, found := strings.Cut(strings.TrimPrefix(u.Path, "/"), ":")
		number, err := strconv.ParseUint(port, 10, 16)
		if found && err == nil && number != 0 && u.Host == "" && len(validation.IsDNS1123Subdomain(strings.TrimSuffix(host, "."))) == 0 {
			return endpoint, nil
		}
	}
	return "", malformed
}

// checkWorkloadAPI refuses an address of the Workload API that is not a Unix socket: the API sends
// private keys without TLS. Source: SPIFFE Workload Endpoint §3.1.
func checkWorkloadAPI(address string) error {
	switch {
	case address == "":
		return errors.New("name the socket of the SPIFFE Workload API, from which the controller has its own SVID, such as unix:///spiffe-workload-api/spire-agent.sock")
	case !strings.HasPrefix(address, "unix:///"):
		return fmt.Errorf("%q is not a Unix socket, such as unix:///spiffe-workload-api/spire-agent.sock", address)
	}
	return nil
}
