package creds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lanyard-dev/lanyard/auth"
)

// spiffeTimeout bounds a call to the SPIFFE Workload API, which is on this machine.
const spiffeTimeout = 10 * time.Second

// spiffeJWT fetches the JWT-SVID of this process. The agent decides which identity the process has.
func (f *Flags) spiffeJWT(ctx context.Context, to Receiver) (Credential, error) {
	if len(to.Audiences) == 0 {
		return Credential{}, needsAudience(SpiffeJWT)
	}
	ctx, cancel := context.WithTimeout(ctx, spiffeTimeout)
	defer cancel()
	client, err := f.workloadAPI(ctx)
	if err != nil {
		return Credential{}, err
	}
	defer client.Close() //nolint:errcheck // nothing is left to send
	svid, err := client.FetchJWTSVID(ctx, jwtsvid.Params{Audience: to.Audiences[0], ExtraAudiences: to.Audiences[1:]})
	if err != nil {
		return Credential{}, f.explainSPIFFE(ctx, err)
	}
	return issuedFor(Credential{Secret: auth.NewSecret(svid.Marshal())}, nil, to.Audiences, "the JWT-SVID")
}

// spiffeCertificate fetches the X.509-SVID of this process.
func (f *Flags) spiffeCertificate(ctx context.Context, _ Receiver) (Credential, error) {
	ctx, cancel := context.WithTimeout(ctx, spiffeTimeout)
	defer cancel()
	client, err := f.workloadAPI(ctx)
	if err != nil {
		return Credential{}, err
	}
	defer client.Close() //nolint:errcheck // nothing is left to send
	svid, err := f.fetchX509(ctx, client)
	if err != nil {
		return Credential{}, err
	}
	chain, key, err := svid.Marshal()
	if err != nil {
		return Credential{}, errors.New("the X.509-SVID cannot be encoded")
	}
	return Credential{Certificate: chain, Key: auth.NewSecret(string(key)), ExpiresAt: svid.Certificates[0].NotAfter.UTC()}, nil
}

// spiffeLogin returns a Login with the X.509-SVID of this process, for TLS. Until it is closed, the
// Login follows the rotation of the SVID.
func (f *Flags) spiffeLogin(ctx context.Context) (*Login, error) {
	bounded, cancel := context.WithTimeout(ctx, spiffeTimeout)
	defer cancel()
	client, err := f.workloadAPI(bounded)
	if err != nil {
		return nil, err
	}
	// Fetch the first SVID without an X509Source: an X509Source would retry without end, and hide
	// why the agent refuses.
	svid, err := f.fetchX509(bounded, client)
	if err == nil {
		var source *workloadapi.X509Source
		if source, err = workloadapi.NewX509Source(bounded, workloadapi.WithClient(client)); err == nil {
			return &Login{
				Certificate: tlsconfig.GetClientCertificate(source), ExpiresAt: svid.Certificates[0].NotAfter.UTC(), ShortLived: true,
				close: func() { _ = errors.Join(source.Close(), client.Close()) },
			}, nil
		}
		err = f.explainSPIFFE(bounded, err)
	}
	return nil, errors.Join(err, client.Close())
}

// fetchX509 fetches an X.509-SVID that has not expired.
func (f *Flags) fetchX509(ctx context.Context, client *workloadapi.Client) (*x509svid.SVID, error) {
	svid, err := client.FetchX509SVID(ctx)
	if err != nil {
		return nil, f.explainSPIFFE(ctx, err)
	}
	if ends := svid.Certificates[0].NotAfter.UTC(); !time.Now().Before(ends) {
		return nil, fmt.Errorf("the X.509-SVID of %s expired at %s; check that the SPIFFE agent can reach its server",
			svid.ID, ends.Format(time.RFC3339))
	}
	return svid, nil
}

// workloadAPI connects to the agent that SPIFFE_ENDPOINT_SOCKET names.
func (f *Flags) workloadAPI(ctx context.Context) (*workloadapi.Client, error) {
	address := f.env(workloadapi.SocketEnv)
	if address == "" {
		return nil, fmt.Errorf("%s is not set; name the socket of the SPIFFE agent, such as unix:///run/spire/agent/api.sock",
			workloadapi.SocketEnv)
	}
	var client *workloadapi.Client
	err := cmp.Or(workloadapi.ValidateAddress(address), checkLocal(address))
	if err == nil {
		client, err = workloadapi.New(ctx, workloadapi.WithAddr(address))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", workloadapi.SocketEnv, err)
	}
	return client, nil
}

// checkLocal refuses an agent on another machine: keys would be sent without TLS.
func checkLocal(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "tcp" {
		return err
	}
	at, err := netip.ParseAddrPort(u.Host)
	if err == nil && !at.Addr().IsLoopback() {
		err = errors.New("the SPIFFE agent must be on this machine: the connection has no TLS")
	}
	return err
}

// explainSPIFFE says why the agent gave nothing, and what to do. Source: SPIFFE Workload API §6.1.
func (f *Flags) explainSPIFFE(ctx context.Context, err error) error {
	at := "the SPIFFE agent at " + f.env(workloadapi.SocketEnv)
	code := status.Code(err)
	switch {
	case code == codes.PermissionDenied:
		return fmt.Errorf("%s knows no identity for this process; "+
			"register the workload that runs this command, with selectors that match it (spire-server entry create)", at)
	case code == codes.DeadlineExceeded || errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s did not answer within %s; check that it is healthy (spire-agent healthcheck)", at, spiffeTimeout)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case code == codes.Unavailable:
		return fmt.Errorf("%s cannot be reached; check that it runs, and that this process may open its socket", at)
	case code == codes.InvalidArgument || code == codes.Unimplemented:
		return fmt.Errorf("%s refuses the request (%s); check that the socket is a SPIFFE Workload API", at, code)
	case code == codes.Unknown:
		return fmt.Errorf("the answer of %s is not an SVID: %w", at, err)
	default:
		return fmt.Errorf("%s gives no SVID: %s", at, code)
	}
}
