package endpoint_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

// judge dials the address through the guard. It returns nil if the guard accepts the address, and
// otherwise the error of the dial. It sends no packet to the address. The dialer's Control, which
// runs after the guard, stops each dial that the guard accepts.
func judge(t *testing.T, guard endpoint.Guard, network, address string) error {
	t.Helper()
	return judgeResolved(t, guard, nil, network, address)
}

func judgeResolved(t *testing.T, guard endpoint.Guard, dns *net.Resolver, network, address string) error {
	t.Helper()
	errPassed := errors.New("the guard let it pass")
	dial := guard.DialContext(&net.Dialer{Resolver: dns, Control: func(string, string, syscall.RawConn) error { return errPassed }})
	conn, err := dial(t.Context(), network, address)
	if err == nil {
		conn.Close()
		t.Fatalf("%s: connected", address)
	}
	if errors.Is(err, errPassed) {
		return nil
	}
	return err
}

func TestGuardAddresses(t *testing.T) {
	listed := endpoint.Guard{DenyCIDRs: mustCIDRs(t, "10.0.0.0/8,fd12::/16,::ffff:192.168.0.0/112")}
	open := endpoint.Guard{DenyCIDRs: mustCIDRs(t, "")}
	for _, tt := range []struct {
		guard endpoint.Guard
		kinds map[string]string
	}{
		{endpoint.Guard{}, map[string]string{
			"52.94.133.131":    "",
			"2600:1f14::1":     "",
			"::ffff:8.8.8.8":   "",
			"64:ff9b::808:808": "",
			"9.255.255.255":    "",
			"11.0.0.0":         "",
			"172.15.255.255":   "",
			"172.32.0.0":       "",
			"192.167.255.255":  "",
			"192.169.0.1":      "",
			"100.63.255.255":   "",
			"100.128.0.0":      "",
			"198.17.255.255":   "",
			"198.20.0.0":       "",
			"fbff::1":          "",

			"10.0.0.1":             "in --deny-cidrs",
			"10.255.255.255":       "in --deny-cidrs",
			"172.16.0.1":           "in --deny-cidrs",
			"172.31.255.255":       "in --deny-cidrs",
			"192.168.0.1":          "in --deny-cidrs",
			"100.64.0.1":           "in --deny-cidrs",
			"100.127.255.255":      "in --deny-cidrs",
			"198.19.0.1":           "in --deny-cidrs",
			"240.0.0.1":            "in --deny-cidrs",
			"255.255.255.254":      "in --deny-cidrs",
			"fc00::1":              "in --deny-cidrs",
			"fdff:ffff::1":         "in --deny-cidrs",
			"::ffff:10.96.0.1":     "in --deny-cidrs",
			"::ffff:100.64.0.1":    "in --deny-cidrs",
			"64:ff9b::a60:1":       "in --deny-cidrs, inside an IPv6 address",
			"64:ff9b::ac10:1":      "in --deny-cidrs, inside an IPv6 address",
			"64:ff9b:1::c0a8:1":    "in --deny-cidrs, inside an IPv6 address",
			"64:ff9b::6440:1":      "in --deny-cidrs, inside an IPv6 address",
			"2002:a60:1::1":        "in --deny-cidrs, inside an IPv6 address",
			"2600::5efe:a60:1":     "in --deny-cidrs, inside an IPv6 address",
			"::ffff:0:192.168.0.1": "in --deny-cidrs, inside an IPv6 address",
			"::172.16.0.1":         "in --deny-cidrs, inside an IPv6 address",

			"127.0.0.1":                 "loopback",
			"127.255.255.254":           "loopback",
			"::1":                       "loopback",
			"::ffff:127.0.0.1":          "loopback",
			"0.0.0.0":                   "unspecified",
			"::":                        "unspecified",
			"::ffff:0.0.0.0":            "unspecified",
			"0.1.2.3":                   "of this network only",
			"255.255.255.255":           "of this network only",
			"fec0::1":                   "of this network only",
			"169.254.1.1":               "link-local",
			"fe80::1":                   "link-local",
			"fe80::1%lo":                "link-local",
			"224.0.0.1":                 "multicast",
			"239.255.255.250":           "multicast",
			"ff02::1":                   "multicast",
			"ff02::1%lo":                "multicast",
			"169.254.169.254":           "of a metadata service",
			"169.254.170.2":             "of a metadata service",
			"169.254.170.23":            "of a metadata service",
			"::ffff:a9fe:a9fe":          "of a metadata service",
			"fd00:ec2::254":             "of a metadata service",
			"fd00:ec2::23":              "of a metadata service",
			"fd00:ec2::254%lo":          "of a metadata service",
			"fd20:ce::254":              "of a metadata service",
			"168.63.129.16":             "of a metadata service",
			"100.100.100.200":           "of a metadata service",
			"::ffff:0:8.8.8.8":          "",
			"2001:0:808:808::f7f7:f7f7": "",
			"2600::1:2:5efe:a60":        "",
		}},
		{listed, map[string]string{
			"172.16.0.1":         "",
			"100.64.0.1":         "",
			"fd13::1":            "",
			"10.1.2.3":           "in --deny-cidrs",
			"::ffff:10.1.2.3":    "in --deny-cidrs",
			"fd12::1":            "in --deny-cidrs",
			"fd12::1%lo":         "in --deny-cidrs",
			"192.168.3.4":        "in --deny-cidrs",
			"::10.1.2.3":         "in --deny-cidrs, inside an IPv6 address",
			"2002:a01:203::1":    "in --deny-cidrs, inside an IPv6 address",
			"::ffff:192.168.0.1": "in --deny-cidrs",
		}},
		// Without denied ranges, private addresses are accepted. All other special addresses are
		// still refused.
		{open, map[string]string{
			"10.1.2.3":                  "",
			"fd12::1":                   "",
			"64:ff9b::a60:1":            "",
			"127.0.0.1":                 "loopback",
			"169.254.169.254":           "of a metadata service",
			"fd00:ec2::254":             "of a metadata service",
			"64:ff9b::7f00:1":           "loopback, inside an IPv6 address",
			"64:ff9b::a9fe:a9fe":        "of a metadata service, inside an IPv6 address",
			"64:ff9b:1::a9fe:a9fe":      "of a metadata service, inside an IPv6 address",
			"::a9fe:a9fe":               "of a metadata service, inside an IPv6 address",
			"2002:7f00:1::1":            "loopback, inside an IPv6 address",
			"2600::5efe:a9fe:a9fe":      "of a metadata service, inside an IPv6 address",
			"2600::200:5efe:7f00:1":     "loopback, inside an IPv6 address",
			"2001:0:102:304::80ff:fffe": "loopback, inside an IPv6 address",
			"::ffff:0:127.0.0.1":        "loopback, inside an IPv6 address",
			"::ffff:0:a9fe:a9fe":        "of a metadata service, inside an IPv6 address",
		}},
	} {
		for addr, kind := range tt.kinds {
			checkKind(t, addr+" with "+tt.guard.DenyCIDRs.String(), judge(t, tt.guard, "tcp", net.JoinHostPort(addr, "443")), kind)
		}
	}
}

// checkKind fails the test unless err is an *endpoint.AddressError of the given kind. If the kind
// is empty, err must be nil.
func checkKind(t *testing.T, what string, err error, kind string) {
	t.Helper()
	if kind == "" {
		if err != nil {
			t.Errorf("%s: got error %v", what, err)
		}
		return
	}
	refusal, ok := errors.AsType[*endpoint.AddressError](err)
	if !ok || refusal.Kind != kind {
		t.Errorf("%s: got error %v, want it refused as %q", what, err, kind)
	}
}

func TestGuardDialsTCPAlone(t *testing.T) {
	for _, tt := range []struct{ network, address, kind string }{
		{"tcp4", "52.94.133.131:443", ""},
		{"tcp6", "[2600:1f14::1]:443", ""},
		{"tcp6", "[::1]:443", "loopback"},
		{"udp4", "52.94.133.131:443", "not of TCP"},
		{"unix", "/var/run/docker.sock", "not of TCP"},
	} {
		checkKind(t, tt.network+" "+tt.address, judge(t, endpoint.Guard{}, tt.network, tt.address), tt.kind)
	}
}

// TestGuardKnowsTheCloudsHosts checks that only the clouds' own hosts may have private addresses.
// Private links give these hosts such addresses. The guard refuses all other special addresses,
// even for the clouds' hosts.
func TestGuardKnowsTheCloudsHosts(t *testing.T) {
	for _, private := range []string{"10.1.2.3", "fd12::3"} {
		dns := resolver(t, func(string) []string { return []string{private} })
		for _, address := range []string{
			"sts.amazonaws.com:443",
			"STS.eu-west-1.amazonaws.com:443",
			"sts.cn-north-1.amazonaws.com.cn:443",
			"sts-fips.us-east-1.amazonaws.com:443",
			"sts.eu-west-1.api.aws:443",
			"123456789123.dkr.ecr.eu-west-1.amazonaws.com:443",
			"123456789123.dkr-ecr.eu-west-1.on.aws:443",
			"public.ecr.aws:443",
			"s3.eu-west-1.amazonaws.com:443",
			"s3.amazonaws.com:443",
			"s3.dualstack.eu-west-1.amazonaws.com:443",
			// ECR serves layers from this bucket.
			"prod-eu-west-1-starport-layer-bucket.s3.eu-west-1.amazonaws.com:443",
			"my.bucket.s3-fips.us-gov-west-1.amazonaws.com:443",
			"bucket.s3.amazonaws.com:443",
			"contoso.azurecr.io:443",
			"contoso.westeurope.geo.azurecr.io:443",
			"contoso.westeurope.data.azurecr.io:443",
			"contoso.azurecr.cn:443",
			"account.blob.core.windows.net:443",
			"account.z12.blob.storage.azure.net:443",
			"europe-west1-docker.pkg.dev:443",
			"docker.europe-west1.rep.pkg.dev:443",
			"eu.gcr.io:443",
			"storage.googleapis.com:443",
			"kms.eu-west-1.amazonaws.com:443",
			"KMS-fips.us-gov-west-1.amazonaws.com:443",
			"kms.eu-west-1.api.aws:443",
			"kms.cn-north-1.amazonaws.com.cn:443",
			"contoso.vault.azure.net:443",
			"contoso.managedhsm.usgovcloudapi.net:443",
			"cloudkms.googleapis.com:443",
			"cloudkms.s3nsapis.fr:443",
		} {
			checkKind(t, address, judgeResolved(t, endpoint.Guard{}, dns, "tcp", address), "")
		}
		for _, address := range []string{
			// Hosts that anybody can own, under names that look like a cloud's.
			"sts.eu-west-1.amazonaws.com.example.org:443",
			"sts.eu-west-1.api.aws.example.org:443",
			"xsts.amazonaws.com:443",
			"s3.example.amazonaws.com:443",
			"bucket.s3.eu-west-1.amazonaws.com.example.org:443",
			"contoso.azurecr.io.example.org:443",
			"contoso.example.data.azurecr.io.example.org:443",
			"europe-west1-docker.pkg.dev.example.org:443",
			"storage.googleapis.com.example.org:443",
			"kms.eu-west-1.amazonaws.com.example.org:443",
			"kms.example.org.amazonaws.com:443",
			"xkms.eu-west-1.amazonaws.com:443",
			"mine.kms.eu-west-1.amazonaws.com:443",
			"kms.eu-west-1.amazonaws.com.cn:443",
			"contoso.vault.azure.net.example.org:443",
			"contosovault.azure.net:443",
			"cloudkms.googleapis.com.example.org:443",
			// These names are in the clouds' domains, but somebody else may choose their addresses.
			"vpce-0123456789abcdef0-abcdefgh.sts.eu-west-1.vpce.amazonaws.com:443",
			"vpce-0123456789abcdef0-abcdefgh.kms.eu-west-1.vpce.amazonaws.com:443",
			"a.b.vault.azure.net:443",
			"mine.privatelink.vaultcore.azure.net:443",
			"mine.cloudkms.googleapis.com:443",
			"bucket.vpce-0123456789abcdef0-abcdefgh.s3.eu-west-1.vpce.amazonaws.com:443",
			"internal-mine-1234567890.eu-west-1.elb.amazonaws.com:443",
			"ec2-10-1-2-3.eu-west-1.compute.amazonaws.com:443",
			"mine.execute-api.eu-west-1.amazonaws.com:443",
			"mine.westeurope.cloudapp.azure.com:443",
			"mine.azurewebsites.net:443",
			"a.b.c.azurecr.io:443",
			"a.westeurope.data.azurecr.io:443",
			"mine.run.app:443",
			"mine.appspot.com:443",
			"mine.storage.googleapis.com:443",
			// The clouds' hosts at other ports.
			"sts.eu-west-1.amazonaws.com:80",
			"s3.eu-west-1.amazonaws.com:8443",
			"contoso.azurecr.io:22",
			"kms.eu-west-1.amazonaws.com:80",
			"contoso.vault.azure.net:8443",
			"cloudkms.googleapis.com:80",
			// Longer than the name of any bucket.
			strings.Repeat("a", 32) + "." + strings.Repeat("b", 31) + ".s3.eu-west-1.amazonaws.com:443",
			// Hosts of no cloud.
			"registry.default.svc.cluster.local:443",
			"registry.default:443",
			"example.org:443",
		} {
			checkKind(t, address, judgeResolved(t, endpoint.Guard{}, dns, "tcp", address), "in --deny-cidrs")
		}
	}
	for inside, kind := range map[string]string{
		"127.0.0.1": "loopback", "169.254.169.254": "of a metadata service", "169.254.1.1": "link-local",
		"64:ff9b::a9fe:a9fe": "of a metadata service, inside an IPv6 address",
	} {
		dns := resolver(t, func(string) []string { return []string{inside} })
		for _, address := range []string{"sts.eu-west-1.amazonaws.com:443", "contoso.azurecr.io:443", "storage.googleapis.com:443", "kms.eu-west-1.amazonaws.com:443", "contoso.vault.azure.net:443"} {
			err := judgeResolved(t, endpoint.Guard{}, dns, "tcp", address)
			checkKind(t, address+" at "+inside, err, kind)
			if refusal, ok := errors.AsType[*endpoint.AddressError](err); ok && refusal.Host+":443" != address {
				t.Errorf("%s: the error names %s", address, refusal.Host)
			}
		}
	}
}

// FuzzGuardCloudHosts checks that only names under the clouds' own domains, at port 443, may have
// private addresses.
func FuzzGuardCloudHosts(f *testing.F) {
	for _, seed := range []string{
		"sts.eu-west-1.amazonaws.com:443", "a.b.s3.eu-west-1.amazonaws.com:443", "contoso.westeurope.data.azurecr.io:443",
		"eu.gcr.io:443", "storage.europe-west1.rep.googleapis.com:443", "public.ecr.aws:443", "account.z1.blob.storage.azure.net:443",
		"vpce-0123456789abcdef0-abcdefgh.sts.eu-west-1.vpce.amazonaws.com:443", "s3.eu-west-1.amazonaws.com.:443", "10.0.0.1:443",
		"kms-fips.us-gov-west-1.api.aws:443", "contoso.vault.azure.net:443", "contoso.managedhsm.azure.cn:443", "cloudkms.googleapis.com:443",
	} {
		f.Add(seed)
	}
	suffixes := []string{"blob.storage.azure.net", "gcr.io"}
	for _, c := range endpoint.AzureClouds() {
		suffixes = append(suffixes, c.RegistrySuffix, "blob."+c.StorageSuffix, c.KeyVaultSuffix, c.ManagedHSMSuffix)
	}
	for _, u := range endpoint.GCPUniverses() {
		suffixes = append(suffixes, u.RegistryDomain, "storage."+u.Domain, "cloudkms."+u.Domain)
		if u.RegionalAPIDomain != "" {
			suffixes = append(suffixes, u.RegionalAPIDomain)
		}
	}
	f.Fuzz(func(t *testing.T, address string) {
		dns := resolver(t, func(string) []string { return []string{"10.1.2.3"} })
		if _, err := netip.ParseAddrPort(address); err == nil || judgeResolved(t, endpoint.Guard{}, dns, "tcp", address) != nil {
			return
		}
		host, port, err := net.SplitHostPort(strings.ToLower(address))
		known := endsInTable(host) || slices.ContainsFunc(suffixes, func(suffix string) bool {
			return strings.HasSuffix("."+host, "."+suffix)
		})
		if err != nil || port != "443" || !isPlainHost(host) || !known || strings.Contains(host, ".vpce.") {
			t.Errorf("%q may be at 10.1.2.3", address)
		}
	})
}

// TestGuardLooksCloudsUpByFullName checks how the guard resolves a cloud's host at port 443. The
// name must have a dot at its end. Without this dot, a resolver in a Pod first appends the
// cluster's domains to a name with few dots. It would then ask for
// public.ecr.aws.svc.cluster.local. A tenant with the namespace aws could answer for this name.
func TestGuardLooksCloudsUpByFullName(t *testing.T) {
	dns := resolver(t, func(string) []string { return nil })
	listed := endpoint.Guard{AllowHosts: mustAllow(t, "public.ecr.aws", "registry.infra")}
	for _, tt := range []struct {
		guard         endpoint.Guard
		address, want string
	}{
		{endpoint.Guard{}, "public.ecr.aws:443", "public.ecr.aws."},
		{endpoint.Guard{}, "registry.example:443", "registry.example"},
		{endpoint.Guard{}, "public.ecr.aws:8443", "public.ecr.aws"},
		{listed, "public.ecr.aws:443", "public.ecr.aws."},
		// The guard adds no dot to this name. The name can mean a Kubernetes Service named
		// "registry" in the namespace "infra".
		{listed, "registry.infra:443", "registry.infra"},
	} {
		err := judgeResolved(t, tt.guard, dns, "tcp", tt.address)
		if e, ok := errors.AsType[*net.DNSError](err); !ok || e.Name != tt.want {
			t.Errorf("%s: %v, want a look-up of %s", tt.address, err, tt.want)
		}
	}
}

// TestAddressErrorNamesTheFlags checks that the error's text names the flag that refuses the
// address and the flag that can allow it.
func TestAddressErrorNamesTheFlags(t *testing.T) {
	dns := resolver(t, func(string) []string { return []string{"10.1.2.3"} })
	err := judgeResolved(t, endpoint.Guard{}, dns, "tcp", "registry.corp.example:5000")
	const want = `address not allowed: the address of "registry.corp.example" is in --deny-cidrs; name a host or proxy that is reachable from outside, ` +
		"or have the administrator list it as host:port in --allowed-endpoint-hosts (identity.allowedEndpointHosts of the Helm chart)"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	// Each of the two flags can allow the address.
	for name, guard := range map[string]endpoint.Guard{
		"listed":  {AllowHosts: mustAllow(t, "registry.corp.example:5000")},
		"allowed": {DenyCIDRs: mustCIDRs(t, "10.96.0.0/12")},
		"open":    {DenyCIDRs: mustCIDRs(t, "")},
	} {
		checkKind(t, name, judgeResolved(t, guard, dns, "tcp", "registry.corp.example:5000"), "")
	}
}

// resolver returns a DNS resolver that answers for each host with the addresses that lookup
// returns.
func resolver(t *testing.T, lookup func(host string) []string) *net.Resolver {
	t.Helper()
	answer := func(query []byte) ([]byte, error) {
		var msg dnsmessage.Message
		if err := msg.Unpack(query); err != nil {
			return nil, err
		}
		q := msg.Questions[0]
		msg.Response, msg.RecursionAvailable, msg.Additionals = true, true, nil
		for _, s := range lookup(strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))) {
			header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET}
			switch addr := netip.MustParseAddr(s); {
			case addr.Is4() && q.Type == dnsmessage.TypeA:
				msg.Answers = append(msg.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
			case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
				msg.Answers = append(msg.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
			}
		}
		return msg.Pack()
	}
	serve := func(conn net.Conn) error {
		defer conn.Close()
		// Over a stream, a length of two bytes precedes each message. Source: RFC 1035 §4.2.2.
		for {
			var length [2]byte
			if _, err := io.ReadFull(conn, length[:]); err != nil {
				return err
			}
			query := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(conn, query); err != nil {
				return err
			}
			reply, err := answer(query)
			if err != nil {
				return err
			}
			if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
				return err
			}
		}
	}
	return &net.Resolver{
		PreferGo: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go serve(server)
			return client, nil
		},
	}
}

// loopbackServer serves HTTP on loopback and counts its connections.
func loopbackServer(t *testing.T, handler http.HandlerFunc) (port string, connections *atomic.Int32) {
	t.Helper()
	connections = new(atomic.Int32)
	server := httptest.NewUnstartedServer(handler)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	must.Succeed(t, err)
	return port, connections
}

func TestGuardDial(t *testing.T) {
	port, connections := loopbackServer(t, func(http.ResponseWriter, *http.Request) {})
	// The first answer for a rebinding name is a harmless address. A guard with a lookup of its own
	// would accept this address, and the connection would go to another address.
	var lookups atomic.Int32
	dns := resolver(t, func(host string) []string {
		switch host {
		case "inside.example.org", "listed.example.org":
			return []string{"127.0.0.1"}
		case "mapped.example.org":
			return []string{"::ffff:127.0.0.1"}
		case "metadata.example.org":
			return []string{"169.254.169.254"}
		case "both.example.org":
			return []string{"127.0.0.1", "::1"}
		case "rebinding.example.org":
			if lookups.Add(1) <= 2 { // one query for A, one for AAAA
				return []string{"203.0.113.1"}
			}
			return []string{"127.0.0.1"}
		default:
			return nil
		}
	})
	guard := endpoint.Guard{AllowHosts: mustAllow(t, "listed.example.org:"+port)}
	dial := guard.DialContext(&net.Dialer{Resolver: dns})
	if addrs, err := dns.LookupHost(t.Context(), "rebinding.example.org"); err != nil || len(addrs) != 1 || addrs[0] != "203.0.113.1" {
		t.Fatalf("the resolver answers %v, %v", addrs, err)
	}
	for host, kind := range map[string]string{
		"127.0.0.1":             "loopback",
		"[::1]":                 "loopback",
		"[::ffff:127.0.0.1]":    "loopback",
		"0.0.0.0":               "unspecified",
		"inside.example.org":    "loopback",
		"INSIDE.example.org":    "loopback",
		"inside.example.org.":   "loopback",
		"mapped.example.org":    "loopback",
		"both.example.org":      "loopback",
		"rebinding.example.org": "loopback",
		"metadata.example.org":  "of a metadata service",
		"listed.example.org.":   "loopback",
	} {
		conn, err := dial(t.Context(), "tcp", host+":"+port)
		if err == nil {
			conn.Close()
		}
		checkKind(t, host, err, kind)
		if err != nil && (strings.Contains(err.Error(), "127.0.0.1:") || strings.Contains(err.Error(), "169.254")) {
			t.Errorf("%s: the error tells the address: %v", host, err)
		}
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
	for _, address := range []string{"listed.example.org:" + port, "LISTED.example.org:" + port} {
		conn, err := dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatalf("%s: got error %v", address, err)
		}
		conn.Close()
	}
	// The entry listed.example.org of AllowHosts allows one port only.
	_, err := dial(t.Context(), "tcp", "listed.example.org:1")
	checkKind(t, "another port of the listed host", err, "loopback")
	// An error that is not a refusal stays unchanged.
	_, err = dial(t.Context(), "tcp", "absent.example.org:"+port)
	if _, ok := errors.AsType[*net.DNSError](err); !ok {
		t.Errorf("got %v for a name without addresses", err)
	}
	if _, err := endpoint.Guard.DialContext(endpoint.Guard{}, nil)(t.Context(), "tcp", "127.0.0.1:"+port); err == nil {
		t.Error("a guard around no dialer lets loopback pass")
	}
}

// TestGuardFollowsRedirects checks that a redirect from a host in AllowHosts to an address inside
// the cluster is refused.
func TestGuardFollowsRedirects(t *testing.T) {
	inside, connections := loopbackServer(t, func(http.ResponseWriter, *http.Request) {})
	listed, _ := loopbackServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://inside.example.org:"+inside+"/", http.StatusTemporaryRedirect)
	})
	guard := endpoint.Guard{AllowHosts: mustAllow(t, "listed.example.org:"+listed)}
	transport := &http.Transport{DialContext: guard.DialContext(&net.Dialer{
		Resolver: resolver(t, func(string) []string { return []string{"127.0.0.1"} }),
	})}
	t.Cleanup(transport.CloseIdleConnections)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://listed.example.org:"+listed+"/", nil)
	must.Succeed(t, err)
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err == nil {
		response.Body.Close()
	}
	checkKind(t, "the redirect", err, "loopback")
	if refusal, ok := errors.AsType[*endpoint.AddressError](err); ok && refusal.Host != "inside.example.org" {
		t.Errorf("got the host %q", refusal.Host)
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

// TestGuardKeepsTheDialersControl checks that the dialer's own control runs after the guard. The
// control runs only for addresses that the guard accepts, and may still refuse them.
func TestGuardKeepsTheDialersControl(t *testing.T) {
	errOwn := errors.New("own control")
	var calls atomic.Int32
	own := func(string, string, syscall.RawConn) error {
		calls.Add(1)
		return errOwn
	}
	for name, dialer := range map[string]*net.Dialer{
		"Control": {Control: own},
		"ControlContext": {ControlContext: func(_ context.Context, network, address string, c syscall.RawConn) error {
			return own(network, address, c)
		}},
	} {
		calls.Store(0)
		dial := endpoint.Guard{}.DialContext(dialer)
		_, err := dial(t.Context(), "tcp", "127.0.0.1:1")
		checkKind(t, name, err, "loopback")
		if calls.Load() != 0 {
			t.Errorf("%s ran for a refused address", name)
		}
		// No packet is sent, because the dialer's Control runs before the connection is made.
		if _, err := dial(t.Context(), "tcp", "203.0.113.1:1"); !errors.Is(err, errOwn) || calls.Load() != 1 {
			t.Errorf("%s: got %v after %d calls", name, err, calls.Load())
		}
	}
}

func mustCIDRs(t *testing.T, list string) endpoint.CIDRs {
	t.Helper()
	var c endpoint.CIDRs
	must.Succeed(t, c.Set(list))
	return c
}

func TestCIDRsIsAFlag(t *testing.T) {
	const private = "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,100.64.0.0/10,198.18.0.0/15,240.0.0.0/4,fc00::/7"
	var c endpoint.CIDRs
	if p := endpoint.PrivateCIDRs(); c.String() != private || p.String() != private {
		t.Errorf("the default is %s", c.String())
	}
	for _, list := range []string{"10.0.0.0", "10.0.0.1/8", "10.0.0.0/33", "fd00::1/8", "a", "10.0.0.0/8,", " 10.0.0.0/8", "fe80::1%eth0/64"} {
		refused(t, c.Set(list), endpoint.ReasonMalformed)
	}
	if c.String() != private {
		t.Errorf("a refused value changed the default to %s", c.String())
	}
	// The first valid list replaces the default, and later lists add ranges.
	for _, step := range []struct{ set, want string }{
		{"10.0.0.0/8,192.0.2.1/32", "10.0.0.0/8,192.0.2.1/32"},
		{"", "10.0.0.0/8,192.0.2.1/32"},
		{"fd00::/8", "10.0.0.0/8,192.0.2.1/32,fd00::/8"},
	} {
		if err := c.Set(step.set); err != nil || c.String() != step.want {
			t.Errorf("after %q: %s, %v, want %s", step.set, c.String(), err, step.want)
		}
	}
	// An empty list denies nothing, unlike the default.
	nothing, more := endpoint.PrivateCIDRs(), endpoint.PrivateCIDRs()
	if err := nothing.Set(""); err != nil || nothing.String() != "" || nothing.Contains(netip.MustParseAddr("10.0.0.1")) {
		t.Errorf("after nothing was set: %s, %v", nothing.String(), err)
	}
	if err := more.Set("192.0.2.1/32"); err != nil || more.String() != "192.0.2.1/32" {
		t.Errorf("after one was set: %s, %v", more.String(), err)
	}
}

// TestCheckTarget checks that every spelling of a refused address is refused, without a connection.
func TestCheckTarget(t *testing.T) {
	guard := endpoint.Guard{AllowHosts: mustAllow(t, "127.0.0.1:5000", "localhost:5000", "[::1]:5000")}
	const ambiguous, metadata, encoded = "a number that programs read in different ways", "of a metadata service", "written with characters other than those of DNS"
	for target, kind := range map[string]string{
		"registry.example.org:443":          "",
		"registry-1.docker.io:443":          "",
		"52.94.133.131:443":                 "",
		"[2600:1f14::1]:443":                "",
		"1234.example.org:443":              "",
		"0xa9.example.org:443":              "",
		"metadata.example.org:443":          "",
		"127.0.0.1:5000":                    "",
		"localhost:5000":                    "",
		"[::1]:5000":                        "",
		"127.0.0.1:5001":                    "loopback",
		"localhost:80":                      "loopback",
		"LOCALHOST.:80":                     "loopback",
		"a.localhost:80":                    "loopback",
		"localhost.localdomain:80":          "loopback",
		"LocalHost6.LocalDomain6.:80":       "loopback",
		"localhost4:80":                     "loopback",
		"ip6-localhost:80":                  "loopback",
		"ip6-loopback:80":                   "loopback",
		"ipv6-localhost:80":                 "loopback",
		"localhost.example.org:80":          "",
		"10.0.0.1:443":                      "in --deny-cidrs",
		"10.0.0.1.:443":                     "in --deny-cidrs",
		"169.254.169.254:80":                metadata,
		"[::ffff:169.254.169.254]:80":       metadata,
		"[::ffff:a9fe:a9fe]:80":             metadata,
		"[0:0:0:0:0:ffff:a9fe:a9fe]:80":     metadata,
		"[fd00:ec2::254%eth0]:80":           metadata,
		"[64:ff9b::a9fe:a9fe]:80":           metadata + ", inside an IPv6 address",
		"[fe80::1%lo]:80":                   "link-local",
		"2852039166:80":                     ambiguous,
		"0xa9fea9fe:80":                     ambiguous,
		"0XA9FEA9FE:80":                     ambiguous,
		"025177524776:80":                   ambiguous,
		"0251.0376.0251.0376:80":            ambiguous,
		"0xa9.0xfe.0xa9.0xfe:80":            ambiguous,
		"169.254.43518:80":                  ambiguous,
		"169.254.169.0xfe:80":               ambiguous,
		"169.254.169.254..:80":              ambiguous,
		"127.1:80":                          ambiguous,
		"010.0.0.1:80":                      ambiguous,
		"1.2.3.4.5:80":                      ambiguous,
		"metadata:80":                       metadata,
		"metadata.google.internal:80":       metadata,
		"Metadata.Google.Internal.:80":      metadata,
		"metadata.goog:80":                  metadata,
		"instance-data:80":                  metadata,
		"instance-data.ec2.internal:80":     metadata,
		"\uff11\uff12\uff17.0.0.1:80":       encoded, // fullwidth digits
		"169\u3002254\u3002169\u3002254:80": encoded, // ideographic full stops
		"127%2e0%2e0%2e1:80":                encoded,
		"[fe80::1%25lo:80":                  "not a host and a port",
		"":                                  "not a host and a port",
		":80":                               encoded,
	} {
		checkKind(t, target, guard.CheckTarget(target), kind)
	}
}
