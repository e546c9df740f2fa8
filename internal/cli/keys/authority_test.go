package keys

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
)

// TestListShowsAuthorities checks the output of "lanyard keys list" for the ring of a trust domain.
// The output has the keys, the authorities, and the certificates that services must trust.
func TestListShowsAuthorities(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 4, 2, 3, 0, 0, 0, time.UTC))
	life := func(state identityv1.KeyState) identityv1.KeyLife {
		return identityv1.KeyLife{State: state, CreatedAt: at, PublishedAt: &at, ActivatedAt: &at, RemovedAt: &at}
	}
	ring := &identityv1.KeyRing{
		ObjectMeta: metav1.ObjectMeta{Namespace: frame.ReleaseNamespace, Name: identityv1.SPIFFEKeyRing},
		Status: identityv1.KeyRingStatus{
			Issuer: "https://spiffe.example.com", TrustDomain: "example.com",
			Keys: []identityv1.RingKey{{KID: "key", Algorithm: identityv1.RS256, KeyLife: life(identityv1.KeyActive)}},
			Authorities: []identityv1.Authority{
				{ID: "old", Certificate: "old-pem", KeyLife: life(identityv1.KeyRemoved)},
				{ID: "new", Certificate: "new-pem", KeyLife: life(identityv1.KeyActive)},
			},
		},
	}
	r := reportRing(ring, at.Time)
	if r.TrustDomain != "example.com" || len(r.Keys) != 3 || r.Keys[0].Certificate != "" || r.Keys[1].Certificate != "" || r.Keys[2].Certificate != "new-pem" {
		t.Errorf("%+v", r)
	}
	var table strings.Builder
	if err := r.table(&table); err != nil {
		t.Fatal(err)
	}
	const want = `KID   ALGORITHM   STATE     SINCE                  NEXT
key   RS256       Active    2026-04-02T03:00:00Z   signs until its successor takes over
old   X.509       Removed   2026-04-02T03:00:00Z   
new   X.509       Active    2026-04-02T03:00:00Z   signs until its successor takes over
`
	if table.String() != want {
		t.Errorf("the table is\n%s", &table)
	}
	if got := active(ring); got != "signing now: key (RS256) new (X.509)" {
		t.Error(got)
	}
}
