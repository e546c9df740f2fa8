package cloudtest_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// get makes a request and returns the status and body, or the error.
func get(t *testing.T, transport http.RoundTripper, target string, change ...func(*http.Request)) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(req)
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

func TestOnlyTheCloudIsReachable(t *testing.T) {
	w := newWorld(t)
	ways := map[string]*http.Transport{"in process": w.Transport(), "through the proxy": w.proxied(t)}
	for way, transport := range ways {
		for target, code := range map[string]string{
			"https://example.org/":                                         "UnknownHost",
			"https://sts.xx-west-1.amazonaws.com/":                         "UnknownHost",
			"https://999999999999.dkr.ecr.eu-west-1.amazonaws.com/":        "UnknownHost",
			"https://sts.eu-west-1.amazonaws.com:8443/":                    "UnknownPort",
			"https://127.0.0.1:6443/":                                      "UnknownHost",
			"https://169.254.169.254/":                                     "UnknownHost",
			"https://sts.eu-west-1.amazonaws.com.attacker.example/":        "UnknownHost",
			"https://sts.eu-west-1.amazonaws.com.:443/":                    "UnknownHost",
			"https://oidc.eks.eu-west-1.amazonaws.com.evil.example:443/id": "UnknownHost",
		} {
			before := w.Journal().Last()
			status, _, err := get(t, transport, target)
			if err == nil {
				t.Errorf("%s: %s: HTTP %d", way, target, status)
				continue
			}
			if !strings.Contains(err.Error(), "part of this local cloud") {
				t.Errorf("%s: %s: the error explains nothing: %v", way, target, err)
			}
			calls := w.Journal().Calls(journal.Filter{After: before, Verdict: journal.Refused, Service: journal.ServiceProxy})
			if len(calls) != 1 || calls[0].Code != code {
				t.Errorf("%s: %s: journal has %+v, want %s", way, target, calls, code)
			}
		}
	}
	if status, _, err := get(t, ways["through the proxy"], "http://sts.eu-west-1.amazonaws.com/"); status != http.StatusForbidden {
		t.Errorf("plain http: HTTP %d, %v", status, err)
	}
}

func TestHostHeaderMustBeTheHandshakes(t *testing.T) {
	w := newWorld(t)
	for name, transport := range map[string]http.RoundTripper{"in process": w.Transport(), "through the proxy": w.proxied(t)} {
		for _, host := range []string{"sts.eu-west-1.amazonaws.com", "example.org", "oidc.eks.eu-west-1.amazonaws.com:8443"} {
			status, body, err := get(t, transport, issuerURL+"/keys", func(r *http.Request) { r.Host = host })
			if err != nil || status != http.StatusMisdirectedRequest {
				t.Errorf("%s: host %s: HTTP %d %s, %v", name, host, status, body, err)
			}
		}
		if status, _, err := get(t, transport, issuerURL+"/keys", func(r *http.Request) { r.Host = "OIDC.eks.eu-west-1.amazonaws.com:443" }); status != 200 {
			t.Errorf("%s: own host in another spelling: HTTP %d, %v", name, status, err)
		}
	}
}

// dialProxy opens a tunnel by hand.
func dialProxy(t *testing.T, w *world, host string) net.Conn {
	t.Helper()
	proxy, err := url.Parse(w.ProxyURL())
	if err != nil {
		t.Fatal(err)
	}
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", proxy.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", host, host); err != nil {
		t.Fatal(err)
	}
	const established = "HTTP/1.1 200 Connection established\r\n\r\n"
	answer := make([]byte, len(established))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != established {
		t.Fatalf("%q, %v", answer, err)
	}
	return conn
}

func TestHandshake(t *testing.T) {
	w := newWorld(t)
	_ = w.proxied(t)
	const host = "sts.eu-west-1.amazonaws.com"
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(w.CAPEM()) {
		t.Fatal("the CA is not PEM")
	}
	good := tls.Client(dialProxy(t, w, host), &tls.Config{ServerName: host, RootCAs: roots})
	if err := good.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	leaf := good.ConnectionState().PeerCertificates[0]
	if diff := cmp.Diff([]string{host}, leaf.DNSNames); diff != "" || leaf.IsCA {
		t.Errorf("certificate (-want +got):\n%s", diff)
	}
	before := w.Journal().Last()
	other := tls.Client(dialProxy(t, w, host), &tls.Config{ServerName: "sts.eu-west-2.amazonaws.com", RootCAs: roots})
	if err := other.HandshakeContext(t.Context()); err == nil {
		t.Error("a handshake for another name than the tunnel's succeeded")
	}
	distrust := tls.Client(dialProxy(t, w, host), &tls.Config{ServerName: host, RootCAs: x509.NewCertPool()})
	if err := distrust.HandshakeContext(t.Context()); err == nil {
		t.Error("a client without the CA trusts it")
	}
	calls, err := w.Journal().Wait(t.Context(), journal.Filter{After: before, Operation: "TLS", Code: "HandshakeFailed", Host: host}, 2)
	if err != nil {
		t.Fatalf("%v: %+v", err, calls)
	}
}

func TestServeRefusesTheNetwork(t *testing.T) {
	w := newWorld(t)
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Serve(t.Context(), ln); err == nil {
		t.Error("served on every address")
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Serve(ctx, ln) }()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestClosedCloud(t *testing.T) {
	w := newWorld(t)
	transport := w.Transport()
	if status, _, err := get(t, transport, issuerURL+"/keys"); status != 200 {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	transport.CloseIdleConnections()
	if _, _, err := get(t, transport, issuerURL+"/keys"); !errors.Is(err, cloudtest.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := w.Start(t.Context()); !errors.Is(err, cloudtest.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestHandleRefuses(t *testing.T) {
	w := newWorld(t)
	for _, host := range []string{
		"", "localhost", "UPPER.example", "issuer.example:443", "https://issuer.example", "*.example", "a..example", "-a.example", "127.0.0.1", "[::1]",
		"sts.amazonaws.com", registryHost, strings.Repeat("a.", 130) + "example",
	} {
		var refusal *cloudtest.HostError
		if err := w.Handle(host, http.NotFoundHandler()); !errors.As(err, &refusal) {
			t.Errorf("%q: %v", host, err)
		}
	}
	if err := w.Handle("issuer.example", http.NotFoundHandler()); err != nil {
		t.Error(err)
	}
	if status, _, err := get(t, w.Transport(), "https://issuer.example/"); status != http.StatusNotFound {
		t.Error(status, err)
	}
	if err := w.Handle("issuer.example", nil); err != nil {
		t.Error(err)
	}
	if _, _, err := get(t, w.Transport(), "https://issuer.example/"); err == nil {
		t.Error("a handler that was taken back still answers")
	}
}

func TestFaults(t *testing.T) {
	const sts, ecr = "sts.eu-west-1.amazonaws.com", "api.ecr.eu-west-1.amazonaws.com"
	tests := []struct {
		name    string
		fault   fault.Fault
		sts     outcome
		ecr     outcome
		message string // part of STS's error
	}{
		{"internal failure", fault.Fault{Kind: fault.InternalFailure}, outcome{"InternalFailure", 500}, outcome{"ServerException", 500}, ""},
		{"unavailable", fault.Fault{Kind: fault.Unavailable}, outcome{"ServiceUnavailable", 503}, outcome{"ServiceUnavailableException", 503}, ""},
		{"throttled", fault.Fault{Kind: fault.Throttle}, outcome{"Throttling", 400}, outcome{"ThrottlingException", 400}, "Rate exceeded"},
		{"one service", fault.Fault{Kind: fault.Throttle, Service: "ecr"}, outcome{}, outcome{"ThrottlingException", 400}, ""},
		{"one operation", fault.Fault{Kind: fault.Throttle, Operation: "GetCallerIdentity"}, outcome{"Throttling", 400}, outcome{}, ""},
		{"one host", fault.Fault{Kind: fault.Throttle, Host: sts}, outcome{"Throttling", 400}, outcome{}, ""},
		{"another host", fault.Fault{Kind: fault.Throttle, Host: "sts.eu-west-2.amazonaws.com"}, outcome{}, outcome{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			id, err := w.Faults().Add(tt.fault)
			if err != nil {
				t.Fatal(err)
			}
			_, err = stsClient(w.Transport(), pusher()).GetCallerIdentity(t.Context(), nil)
			if diff := cmp.Diff(tt.sts, outcomeOf(err)); diff != "" {
				t.Errorf("STS (-want +got):\n%s", diff)
			}
			if tt.message != "" && !strings.Contains(err.Error(), tt.message) {
				t.Errorf("STS says %v", err)
			}
			_, err = ecrClient(w.Transport(), pusher()).GetAuthorizationToken(t.Context(), nil)
			if diff := cmp.Diff(tt.ecr, outcomeOf(err)); diff != "" {
				t.Errorf("ECR (-want +got):\n%s", diff)
			}
			for _, c := range w.Journal().Calls(journal.Filter{}) {
				if (c.Fault == id) != (c.Code != "") {
					t.Errorf("journal says %+v", c)
				}
			}
			w.Faults().Clear()
			if _, err := stsClient(w.Transport(), pusher()).GetCallerIdentity(t.Context(), nil); err != nil {
				t.Errorf("after the fault: %v", err)
			}
		})
	}
	t.Run("dropped", func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.Faults().Add(fault.Fault{Kind: fault.Drop, Count: 1}); err != nil {
			t.Fatal(err)
		}
		transport := w.Transport()
		if _, err := stsClient(transport, pusher()).GetCallerIdentity(t.Context(), nil); !strings.Contains(fmt.Sprint(err), "EOF") {
			t.Errorf("got %v", err)
		}
		if _, err := stsClient(transport, pusher()).GetCallerIdentity(t.Context(), nil); err != nil {
			t.Errorf("second call: %v", err)
		}
		calls := w.Journal().Calls(journal.Filter{})
		if len(calls) != 2 || calls[0].Code != "Dropped" || calls[0].Status != 0 || calls[1].Code != "" {
			t.Errorf("journal has %+v", calls)
		}
	})
	t.Run("malformed", func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.Faults().Add(fault.Fault{Kind: fault.Malformed}); err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{
			"STS": second(assume(t.Context(), stsClient(w.Transport(), nil), roleA, w.mint(t, subjectA))),
			"ECR": second(ecrClient(w.Transport(), pusher()).GetAuthorizationToken(t.Context(), nil)),
		} {
			if err == nil || !strings.Contains(err.Error(), "deserialization") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("refused", func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.Faults().Add(fault.Fault{Kind: fault.Refuse, Host: ecr}); err != nil {
			t.Fatal(err)
		}
		for _, transport := range []*http.Transport{w.Transport(), w.proxied(t)} {
			if _, err := ecrClient(transport, pusher()).GetAuthorizationToken(t.Context(), nil); !strings.Contains(fmt.Sprint(err), "refuses connections to "+ecr) {
				t.Errorf("got %v", err)
			}
			if _, err := stsClient(transport, pusher()).GetCallerIdentity(t.Context(), nil); err != nil {
				t.Errorf("another host: %v", err)
			}
		}
	})
	t.Run("issuer down", func(t *testing.T) {
		w := newWorld(t)
		for _, tt := range []struct {
			fault fault.Fault
			want  string
		}{
			{fault.Fault{Kind: fault.Refuse, Host: "oidc.eks.eu-west-1.amazonaws.com", Count: 1}, "IDPCommunicationError"},
			{fault.Fault{Kind: fault.Drop, Host: "oidc.eks.eu-west-1.amazonaws.com", Count: 2}, "IDPCommunicationError"}, // net/http tries twice
			{fault.Fault{Kind: fault.Unavailable, Host: "oidc.eks.eu-west-1.amazonaws.com", Count: 1}, "IDPCommunicationError"},
			{fault.Fault{Kind: fault.Malformed, Host: "oidc.eks.eu-west-1.amazonaws.com", Count: 1}, "InvalidIdentityToken"},
		} {
			w.Faults().Clear()
			if _, err := w.Faults().Add(tt.fault); err != nil {
				t.Fatal(err)
			}
			_, err := assume(t.Context(), stsClient(w.Transport(), nil), roleA, w.mint(t, subjectA))
			if diff := cmp.Diff(outcome{tt.want, 400}, outcomeOf(err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.fault.Kind, diff)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestLatencyHonoursTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.Faults().Add(fault.Fault{Service: "sts", Kind: fault.Latency, Delay: 2 * time.Second}); err != nil {
			t.Fatal(err)
		}
		transport := w.Transport()
		defer transport.CloseIdleConnections()
		start := time.Now()
		if _, err := stsClient(transport, pusher()).GetCallerIdentity(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("answered after %s, want 2s", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := stsClient(transport, pusher()).GetCallerIdentity(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		calls, err := w.Journal().Wait(t.Context(), journal.Filter{Code: "CallerGone"}, 1)
		if err != nil || time.Since(start) >= 4*time.Second {
			t.Errorf("the cloud went on waiting for a caller that had gone: %+v, %v", calls, err)
		}
	})
}

func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.Faults().SetQuotas([]fault.Quota{{Service: "sts", PerSecond: 2, Burst: 3}}); err != nil {
			t.Fatal(err)
		}
		transport := w.Transport()
		defer transport.CloseIdleConnections()
		var codes []string
		call := func() {
			_, err := stsClient(transport, pusher()).GetCallerIdentity(t.Context(), nil)
			codes = append(codes, outcomeOf(err).Code)
		}
		for range 4 {
			call()
		}
		time.Sleep(500 * time.Millisecond)
		call()
		call()
		want := []string{"", "", "", "Throttling", "", "Throttling"}
		if diff := cmp.Diff(want, codes); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
