package broker

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	brokerapi "github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/privatekey"
)

// choose returns the first SVID with the given SPIFFE ID. The broker sends one SVID for each
// identity of the object.
func choose[S interface{ GetSpiffeId() string }](svids []S, id spiffeid.ID) (chosen S, err error) {
	for _, s := range svids {
		if s.GetSpiffeId() == id.String() {
			return s, nil
		}
	}
	said := "it has no SVID for the object"
	if len(svids) > 0 {
		said = fmt.Sprintf("it has %d, and the first is of %.200q", len(svids), svids[0].GetSpiffeId())
	}
	return chosen, &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeProofDenied, Fix: fixEntry(id),
		Err: fmt.Errorf("the SPIFFE broker gives no SVID of %s: %s", id, said),
	}
}

// fixEntry returns what people must do if the broker has no SVID with this SPIFFE ID for the
// object.
func fixEntry(id spiffeid.ID) string {
	return fmt.Sprintf("have the administrator register %s for the object, selected by its kind, namespace and name", id)
}

// jwtOf returns the JWT-SVID of the ID. The SVID must have exactly the given audiences. Its
// signature is not verified here: the broker has authenticated itself, and the receiver verifies
// the signature.
func jwtOf(svids []*brokerapi.JWTSVID, id spiffeid.ID, audiences []string, now time.Time) (auth.Proof, error) {
	chosen, err := choose(svids, id)
	if err != nil {
		return nil, err
	}
	parsed, err := jwtsvid.ParseInsecure(chosen.GetSvid(), audiences)
	switch {
	case err != nil:
		return nil, invalid(id, err)
	case parsed.ID != id:
		return nil, invalid(id, fmt.Errorf("it is of %s", parsed.ID))
	case !slices.Equal(slices.Sorted(slices.Values(parsed.Audience)), slices.Sorted(slices.Values(audiences))):
		return nil, invalid(id, errors.New("it has other audiences than were asked for"))
	case !now.Before(parsed.Expiry):
		return nil, invalid(id, fmt.Errorf("it expired at %s", parsed.Expiry.UTC().Format(time.RFC3339)))
	}
	return &auth.JWT{Token: auth.NewSecret(chosen.GetSvid()), ExpiresAt: parsed.Expiry.UTC()}, nil
}

// certificateOf returns the X.509-SVID of the ID. Its chain must end at an authority in the bundle
// of its trust domain, and the key must belong to the certificate.
func certificateOf(svids []*brokerapi.X509SVID, id spiffeid.ID, bundles x509bundle.Source, now time.Time) (auth.Proof, error) {
	chosen, err := choose(svids, id)
	if err != nil {
		return nil, err
	}
	// Check the key first: with a malicious key, ParseRaw could take minutes or panic.
	if _, err := privatekey.Parse(chosen.GetX509SvidKey()); err != nil {
		return nil, invalid(id, err)
	}
	parsed, err := x509svid.ParseRaw(chosen.GetX509Svid(), chosen.GetX509SvidKey())
	if err != nil {
		return nil, invalid(id, err)
	}
	if parsed.ID != id {
		return nil, invalid(id, fmt.Errorf("it is of %s", parsed.ID))
	}
	if _, _, err := x509svid.Verify(parsed.Certificates, bundles, x509svid.WithTime(now)); err != nil {
		return nil, invalid(id, err)
	}
	var chain [][]byte
	expires := parsed.Certificates[0].NotAfter
	for _, certificate := range parsed.Certificates {
		chain = append(chain, certificate.Raw)
		if certificate.NotAfter.Before(expires) {
			expires = certificate.NotAfter
		}
	}
	return auth.NewCertificate(chain, parsed.PrivateKey, expires.UTC()), nil
}

// invalid is the error for an SVID that must not be used.
func invalid(id spiffeid.ID, err error) error {
	return &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeProofInvalid,
		Fix: "have the administrator check the SPIFFE broker, and compare its clock with that of this machine",
		Err: fmt.Errorf("the SVID of %s from the SPIFFE broker: %w", id, err),
	}
}
