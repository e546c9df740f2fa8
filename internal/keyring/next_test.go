//go:build !concurrent

// These tests start no goroutine, so the race detector would only slow them down.

package keyring

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	lanyardmeta "github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const day = 24 * time.Hour

func today() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// daily returns a policy whose keys are published for a day before they sign for 90 days.
func daily() Policy {
	return Policy{
		Issuer: "https://issuer.example", Algorithms: []v1alpha1.Algorithm{v1alpha1.RS256},
		PublishDelay: day, RotationPeriod: 90 * day, MaxLife: 48 * time.Hour,
	}
}

// key parses a key from the text "kid state age", optionally with "tainted" and an algorithm. The
// age is how long the key has been in its state. Each earlier state lasted five days.
func key(t *testing.T, text string) v1alpha1.RingKey {
	t.Helper()
	words := strings.Fields(text)
	age, err := time.ParseDuration(words[2])
	must.Succeed(t, err)
	entered := today().Add(-age)
	at := func(states int) *metav1.Time { return new(stamp(entered.Add(-time.Duration(states) * 5 * day))) }
	k := v1alpha1.RingKey{KID: words[0], Algorithm: v1alpha1.RS256, KeyLife: v1alpha1.KeyLife{State: v1alpha1.KeyState(words[1])}}
	switch k.State {
	case v1alpha1.KeyPending:
		k.CreatedAt = *at(0)
	case v1alpha1.KeyPublished:
		k.CreatedAt, k.PublishedAt = *at(1), at(0)
	case v1alpha1.KeyActive:
		k.CreatedAt, k.PublishedAt, k.ActivatedAt = *at(2), at(1), at(0)
	case v1alpha1.KeyRetiring:
		k.CreatedAt, k.PublishedAt, k.ActivatedAt, k.RetiredAt = *at(3), at(2), at(1), at(0)
	case v1alpha1.KeyRemoved, v1alpha1.KeyRevoked:
		k.CreatedAt, k.PublishedAt, k.ActivatedAt, k.RemovedAt = *at(3), at(2), at(1), at(0)
	default:
		t.Fatalf("no state %q", k.State)
	}
	if k.ActivatedAt != nil {
		k.MaxLife.Duration = 48 * time.Hour
	}
	for _, word := range words[3:] {
		if word == "tainted" {
			k.Tainted = true
		} else {
			k.Algorithm = v1alpha1.Algorithm(word)
		}
	}
	return k
}

// ringOf parses the keys of a ring. It returns the ring, and an observation with all private
// halves.
func ringOf(t *testing.T, texts ...string) (*v1alpha1.KeyRing, Observation) {
	t.Helper()
	ring, o := &v1alpha1.KeyRing{}, Observation{}
	for _, text := range texts {
		k := key(t, text)
		ring.Status.Keys = append(ring.Status.Keys, k)
		o.Held = append(o.Held, k.KID)
	}
	return ring, o
}

// documentOf returns a public document with all public keys of the ring.
func documentOf(ring *v1alpha1.KeyRing) *Document {
	document := &Document{}
	for _, k := range ring.Status.Keys {
		if Public(k.State) {
			document.KIDs = append(document.KIDs, k.KID)
		}
	}
	return document
}

// These functions change inputs of Next: the KeyRing, the Observation or the Policy.
func withES256(_ *v1alpha1.KeyRing, _ *Observation, p *Policy) {
	p.Algorithms = append(p.Algorithms, v1alpha1.ES256)
}

func afterOtherKeys(r *v1alpha1.KeyRing, _ *Observation, _ *Policy)  { r.Status.OtherKeysSeen = true }
func afterRevision41(_ *v1alpha1.KeyRing, o *Observation, _ *Policy) { o.Revision = 41 }

// states returns keys as text: "kid state", and "tainted" for a tainted key.
func states(keys []v1alpha1.RingKey) string {
	var texts []string
	for _, k := range keys {
		text := k.KID + " " + string(k.State)
		if k.Tainted {
			text += " tainted"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

func TestNext(t *testing.T) {
	const reachable = "reachable" // the public document has all public keys of the ring
	for _, tt := range []struct {
		name string
		ring []string
		spec v1alpha1.KeyRingSpec
		// document is one of:
		//   - the kids in the public document, separated by spaces
		//   - the constant reachable: the document has all public keys of the ring
		//   - "down" if the document cannot be read
		//   - "" if its URL is not known
		document string
		lost     string // kid whose private half is lost
		edit     func(*v1alpha1.KeyRing, *Observation, *Policy)

		want    string
		missing int
		ready   string // expected reason of the condition Ready
		rotates string // expected reason of the condition CanRotate
	}{
		// A new ring.
		{
			name: "an empty ring gets a key and its successor",
			want: "", missing: 2, ready: "NoKey", rotates: "NoKey",
		},
		{
			name: "a new key is not used before verifiers can see it",
			ring: []string{"a Pending 1m", "b Pending 1m"}, document: "down",
			want: "a Pending, b Pending", ready: "NotPublished", rotates: "DocumentUnreachable",
		},
		{
			name: "a document without the key is no publication",
			ring: []string{"a Pending 1m", "b Pending 1m"}, document: " ",
			want: "a Pending, b Pending", ready: "NotPublished", rotates: "NotPublished",
		},
		{
			name: "the first key signs as soon as it is seen: no verifier has cached another",
			ring: []string{"a Pending 1m", "b Pending 1m"}, document: reachable,
			want: "a Active, b Published", ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "the first keys of two algorithms sign together",
			ring: []string{"a Pending 1m", "b Pending 1m", "c Pending 1m ES256", "d Pending 1m ES256"}, document: reachable,
			edit: withES256,
			want: "a Active, b Published, c Active, d Published", ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "an algorithm that is added later waits for the delay",
			ring: []string{"a Active 9h", "b Published 9h", "c Pending 1m ES256", "d Pending 1m ES256"}, document: reachable,
			edit: withES256,
			want: "a Active, b Published, c Published, d Published", ready: "NotPublished", rotates: "NotPublished",
		},
		{
			name: "without a look at the document, people confirm the first key",
			ring: []string{"a Pending 1m", "b Pending 1m"}, spec: confirm("a", false),
			want: "a Active, b Pending", ready: "Succeeded", rotates: "Succeeded",
		},
		// Reinstallation under the same URL.
		{
			name: "a document of other keys was served before: the first key waits",
			ring: []string{"a Pending 1m", "b Pending 1m"}, document: reachable,
			edit: afterOtherKeys,
			want: "a Published, b Published", ready: "NotPublished", rotates: "NotPublished",
		},
		{
			name: "after the delay it signs",
			ring: []string{"a Published 25h", "b Published 25h"}, document: reachable,
			edit: afterOtherKeys,
			want: "a Active, b Published", ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "a person knows that nobody has cached anything",
			ring: []string{"a Published 1m", "b Published 1m"}, document: reachable, spec: confirm("a", true),
			edit: afterOtherKeys,
			want: "a Active, b Published", ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "private halves of an earlier ring are found: its keys were public",
			ring: []string{"a Pending 1m", "b Pending 1m"}, document: reachable,
			edit: func(_ *v1alpha1.KeyRing, o *Observation, _ *Policy) { o.EarlierKeys = true },
			want: "a Published, b Published", ready: "NotPublished", rotates: "NotPublished",
		},
		{
			name: "the public URL still serves the keys of before",
			ring: []string{"a Pending 1m", "b Pending 1m"}, document: "old",
			want: "a Pending, b Pending", ready: "NotPublished", rotates: "ForeignKey",
		},
		// Rotation.
		{
			name: "at rest nothing changes",
			ring: []string{"a Active 1440h", "b Published 1440h"}, document: reachable,
			want: "a Active, b Published", ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "the schedule rotates, and asks for a new successor",
			ring: []string{"a Active 2160h", "b Published 2160h"}, document: reachable,
			want: "a Retiring, b Active", missing: 1, ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "people rotate",
			ring: []string{"a Active 1h", "b Published 25h"}, document: reachable, spec: v1alpha1.KeyRingSpec{Rotate: "now"},
			want: "a Retiring, b Active", missing: 1, ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "a wish that was fulfilled is not fulfilled again",
			ring: []string{"a Retiring 25h", "b Active 25h", "c Published 25h"}, document: reachable, spec: v1alpha1.KeyRingSpec{Rotate: "then"},
			edit: func(r *v1alpha1.KeyRing, _ *Observation, _ *Policy) { r.Status.Keys[1].Rotation = "then" },
			want: "a Retiring, b Active, c Published", ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "a successor that was not published for the delay does not sign",
			ring: []string{"a Active 2160h", "b Published 23h"}, document: reachable,
			want: "a Active, b Published", ready: "Succeeded", rotates: "NotPublished",
		},
		{
			name: "a successor that cannot be seen now does not sign: the rotation waits and says so",
			ring: []string{"a Active 2160h", "b Published 2160h"}, document: "down",
			want: "a Active, b Published", ready: "Succeeded", rotates: "DocumentUnreachable",
		},
		{
			name: "a successor that has left the document begins anew",
			ring: []string{"a Active 2160h", "b Published 2160h"}, document: "a",
			want: "a Active, b Pending", ready: "Succeeded", rotates: "NotPublished",
		},
		{
			name: "a delay that begins in the future has not passed",
			ring: []string{"a Active 2160h", "b Published -48h"}, document: reachable,
			want: "a Active, b Published", ready: "Succeeded", rotates: "NotPublished",
		},
		{
			name: "people confirm, and the delay passes all the same",
			ring: []string{"a Active 2160h", "b Pending 1h"}, spec: confirm("b", false),
			want: "a Active, b Published", ready: "Succeeded", rotates: "NotPublished",
		},
		{
			name: "a key that stays unseen for the delay is told of, although nothing is due",
			ring: []string{"a Active 48h", "b Pending 25h"}, document: "down",
			want: "a Active, b Pending", ready: "Succeeded", rotates: "DocumentUnreachable",
		},
		{
			name: "each algorithm rotates by itself",
			ring: []string{"a Active 2160h", "b Published 2160h", "c Active 48h ES256", "d Published 48h ES256"}, document: reachable,
			edit: withES256,
			want: "a Retiring, b Active, c Active, d Published", missing: 1, ready: "Succeeded", rotates: "Succeeded",
		},
		// Removal.
		{
			name: "a key stays until the last token has expired, and a signer's last view and two clocks are accounted for",
			ring: []string{"a Retiring 48h2m59s", "b Active 48h2m59s", "c Published 9h"}, document: reachable,
			want: "a Retiring, b Active, c Published", ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "then it leaves the document",
			ring: []string{"a Retiring 48h3m", "b Active 48h3m", "c Published 9h"}, document: reachable,
			want: "a Removed, b Active, c Published", ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "a shorter maximum does not shorten what was signed under a longer one",
			ring: []string{"a Retiring 47h", "b Active 47h", "c Published 9h"}, document: reachable,
			edit: func(_ *v1alpha1.KeyRing, _ *Observation, p *Policy) { p.MaxLife = time.Hour },
			want: "a Retiring, b Active, c Published", ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "a cached document may have a removed key: that is no foreign key",
			ring: []string{"a Removed 1h", "b Active 48h", "c Published 9h"}, document: "a b c",
			want: "a Removed, b Active, c Published", ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "a removed key is forgotten",
			ring: []string{"a Removed 73h", "b Active 148h", "c Published 9h"}, document: reachable,
			want: "b Active, c Published", ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "keys of an algorithm that is not wanted any more retire",
			ring: []string{"a Active 48h", "b Published 48h", "c Active 48h ES256", "d Published 48h ES256"}, document: reachable,
			want: "a Active, b Published, c Retiring, d Removed", ready: "Succeeded", rotates: "Succeeded",
		},
		// Revocation.
		{
			name: "the successor signs at once, whatever the delay, and a key that nobody has cached is made",
			ring: []string{"a Active 48h", "b Published 1m"}, document: reachable, spec: v1alpha1.KeyRingSpec{Revoke: []string{"a"}},
			want: "a Revoked, b Active tainted", missing: 2, ready: "Succeeded", rotates: "NoKey",
		},
		{
			name: "second step: that key replaces the tainted one as soon as it was published for the delay",
			ring: []string{"a Revoked 25h", "b Active 25h tainted", "c Published 24h", "d Published 24h"}, document: reachable,
			spec: v1alpha1.KeyRingSpec{Revoke: []string{"a"}},
			want: "a Revoked, b Retiring tainted, c Active, d Published", ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "not before",
			ring: []string{"a Revoked 24h", "b Active 24h tainted", "c Published 23h", "d Published 23h"}, document: reachable,
			want: "a Revoked, b Active tainted, c Published, d Published", ready: "Succeeded", rotates: "NotPublished",
		},
		{
			name: "unless people skip the delay",
			ring: []string{"a Revoked 1h", "b Active 1h tainted", "c Published 1m", "d Published 1m"}, document: reachable, spec: confirm("c", true),
			want: "a Revoked, b Retiring tainted, c Active, d Published", ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "a second successor that was cached with the revoked key never signs",
			ring: []string{"a Revoked 25h", "b Active 25h tainted", "x Published 50h tainted", "c Published 24h", "d Published 24h"}, document: reachable,
			want: "a Revoked, b Retiring tainted, x Removed tainted, c Active, d Published", ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "the revoked successor: the active key was cached with it, and is replaced too",
			ring: []string{"a Active 48h", "b Published 48h"}, document: reachable, spec: v1alpha1.KeyRingSpec{Revoke: []string{"b"}},
			want: "a Active tainted, b Revoked", missing: 2, ready: "Succeeded", rotates: "NoKey",
		},
		{
			name: "both revoked: nothing signs until a new key is seen",
			ring: []string{"a Active 48h", "b Published 48h"}, document: reachable, spec: v1alpha1.KeyRingSpec{Revoke: []string{"a", "b"}},
			want: "a Revoked, b Revoked tainted", missing: 2, ready: "NoKey", rotates: "NoKey",
		},
		{
			name: "then it signs without the delay",
			ring: []string{"a Revoked 1m", "b Revoked 1m", "c Pending 1m", "d Pending 1m"}, document: "a b c d",
			want: "a Revoked, b Revoked, c Active, d Published", ready: "Succeeded", rotates: "Succeeded",
		},
		{
			name: "the flag revokes what a backup brought back",
			ring: []string{"a Active 48h", "b Published 48h"}, document: reachable,
			edit: func(_ *v1alpha1.KeyRing, _ *Observation, p *Policy) { p.Revoked = []string{"a"} },
			want: "a Revoked, b Active tainted", missing: 2, ready: "Succeeded", rotates: "NoKey",
		},
		{
			name: "a key is revoked while the clocks differ, and nothing else happens",
			ring: []string{"a Active 2160h", "b Published 2160h", "c Retiring 1000h"}, document: reachable, spec: v1alpha1.KeyRingSpec{Revoke: []string{"a"}},
			edit: func(_ *v1alpha1.KeyRing, o *Observation, _ *Policy) { o.Skew = -61 * time.Second },
			want: "a Revoked, b Active tainted, c Retiring", ready: "Succeeded", rotates: "ClockSkew",
		},
		{
			name: "a revoked key is not forgotten before the second step",
			ring: []string{"a Revoked 1000h", "b Active 1000h tainted", "c Pending 1000h", "d Pending 1000h"}, document: "down",
			want: "a Revoked, b Active tainted, c Pending, d Pending", ready: "Succeeded", rotates: "DocumentUnreachable",
		},
		// Foreign keys.
		{
			name: "a key that was added by hand stops rotation",
			ring: []string{"a Active 2160h", "b Published 2160h", "x Retiring 1h"}, document: reachable, lost: "x",
			want: "a Active, b Published, x Retiring", ready: "Succeeded", rotates: "ForeignKey",
		},
		{
			name: "a key in the public document that the ring never had stops rotation",
			ring: []string{"a Active 2160h", "b Published 2160h"}, document: "a b x",
			want: "a Active, b Published", ready: "Succeeded", rotates: "ForeignKey",
		},
		{
			name: "a lost Secret of the active key is told of",
			ring: []string{"a Active 48h", "b Published 48h"}, document: reachable, lost: "a",
			want: "a Active, b Published", ready: "ForeignKey", rotates: "ForeignKey",
		},
		{
			name: "and revoking the key ends that",
			ring: []string{"a Active 48h", "b Published 48h"}, document: reachable, lost: "a", spec: v1alpha1.KeyRingSpec{Revoke: []string{"a"}},
			want: "a Revoked, b Active tainted", missing: 2, ready: "Succeeded", rotates: "NoKey",
		},
		{
			name: "a successor without private half never signs",
			ring: []string{"a Active 48h", "b Published 48h"}, document: reachable, lost: "b", spec: v1alpha1.KeyRingSpec{Revoke: []string{"a"}},
			want: "a Revoked, b Published tainted", missing: 2, ready: "NotPublished", rotates: "ForeignKey",
		},
		// Backups and moves.
		{
			name: "a ring from a backup: what was published then may have been missing since",
			ring: []string{"a Active 2160h", "b Published 2160h"}, document: reachable,
			edit: afterRevision41,
			want: "a Active, b Published", ready: "Succeeded", rotates: "NotPublished",
		},
		{
			name: "a ring that was deleted: other keys were public",
			edit: afterRevision41,
			want: "", missing: 2, ready: "NoKey", rotates: "NoKey",
		},
		{
			name: "the issuer moves: nobody has read its document at the new place",
			ring: []string{"a Active 2160h", "b Published 2160h"}, document: reachable,
			edit: func(r *v1alpha1.KeyRing, _ *Observation, _ *Policy) { r.Status.Issuer = "https://before.example" },
			want: "a Active, b Published", ready: "Succeeded", rotates: "NotPublished",
		},
		// Clocks.
		{
			name: "clocks that differ stop all that depends on time",
			ring: []string{"a Active 2160h", "b Published 2160h", "c Retiring 1000h"}, document: reachable,
			edit: func(_ *v1alpha1.KeyRing, o *Observation, _ *Policy) { o.Skew = 61 * time.Second },
			want: "a Active, b Published, c Retiring", ready: "Succeeded", rotates: "ClockSkew",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ring, o := ringOf(t, tt.ring...)
			ring.Spec = tt.spec
			o.Held = slices.DeleteFunc(o.Held, func(kid string) bool { return kid == tt.lost })
			p := daily()
			switch tt.document {
			case "":
			case "down":
				o.DocumentErr = errors.New("down")
			case reachable:
				o.Document = documentOf(ring)
			default:
				o.Document = &Document{KIDs: strings.Fields(tt.document)}
			}
			if tt.edit != nil {
				tt.edit(ring, &o, &p)
			}
			must.Succeed(t, p.Validate())
			before := ring.DeepCopy()
			plan := Next(ring, o, p, today())
			if got := states(plan.Status.Keys); got != tt.want {
				t.Errorf("keys: %s\nwant: %s", got, tt.want)
			}
			if got := len(plan.Missing); got != tt.missing {
				t.Errorf("%d new keys, want %d", got, tt.missing)
			}
			for condition, want := range map[string]string{lanyardmeta.ConditionReady: tt.ready, v1alpha1.ConditionCanRotate: tt.rotates} {
				c := meta.FindStatusCondition(plan.Status.Conditions, condition)
				if c == nil || c.Reason != want || (c.Status == metav1.ConditionTrue) != (want == lanyardmeta.ReasonSucceeded) {
					t.Errorf("%s: %+v, want %s", condition, c, want)
				}
			}
			if fmt.Sprint(before) != fmt.Sprint(ring) {
				t.Error("Next changed the object")
			}
			settles(t, ring, plan, o, p)
		})
	}
}

// settles repeats Next with the same observation. After a few steps, the ring must stop changing,
// or need a new key.
func settles(t *testing.T, ring *v1alpha1.KeyRing, plan Plan, o Observation, p Policy) {
	t.Helper()
	ring.Status = plan.Status
	for range 3 {
		again := Next(ring, o, p, today())
		if len(again.Missing) > 0 || !again.Changed {
			return
		}
		ring.Status = again.Status
	}
	t.Error("the ring does not come to rest")
}

func confirm(kid string, skip bool) v1alpha1.KeyRingSpec {
	return v1alpha1.KeyRingSpec{Confirm: []v1alpha1.KeyConfirmation{{KID: kid, SkipDelay: skip}}}
}

// TestNextKeepsLongestLife checks that a key's MaxLife grows with the policy, and never shrinks.
func TestNextKeepsLongestLife(t *testing.T) {
	ring, o := ringOf(t, "a Active 48h", "b Published 48h")
	for _, tt := range []struct{ policy, want time.Duration }{{72 * time.Hour, 72 * time.Hour}, {time.Hour, 72 * time.Hour}} {
		p := daily()
		p.MaxLife = tt.policy
		ring.Status = Next(ring, o, p, today()).Status
		if got := ring.Status.Keys[0].MaxLife.Duration; got != tt.want {
			t.Errorf("under a maximum of %v the ring says %v, want %v", tt.policy, got, tt.want)
		}
	}
}

// TestNextRevision checks that each change increments the revision, and that a ring from a backup
// continues after the highest revision that was seen.
func TestNextRevision(t *testing.T) {
	ring, o := ringOf(t, "a Active 48h", "b Published 48h")
	ring.Status.Revision, o.Revision = 7, 7
	ring.Status = Next(ring, o, daily(), today()).Status
	if got := ring.Status.Revision; got != 8 {
		t.Errorf("revision %d, want 8", got)
	}
	o.Revision = 8
	if plan := Next(ring, o, daily(), today().Add(time.Minute)); plan.Changed || plan.Status.Revision != 8 {
		t.Errorf("at rest: changed %v, revision %d", plan.Changed, plan.Status.Revision)
	}
	o.Revision = 41
	if plan := Next(ring, o, daily(), today()); !plan.Changed || plan.Status.Revision != 42 {
		t.Errorf("after a backup: changed %v, revision %d", plan.Changed, plan.Status.Revision)
	}
}

// TestNextRemembersOtherKeys checks that OtherKeysSeen stays true after the document has had a key
// that is not in the ring.
func TestNextRemembersOtherKeys(t *testing.T) {
	ring := &v1alpha1.KeyRing{}
	ring.Status = Next(ring, Observation{Document: &Document{KIDs: []string{"old"}}}, daily(), today()).Status
	if !ring.Status.OtherKeysSeen {
		t.Fatal("not noticed")
	}
	ring.Status = Next(ring, Observation{DocumentErr: errors.New("down")}, daily(), today()).Status
	if !ring.Status.OtherKeysSeen {
		t.Error("forgotten")
	}
}

// TestNextNamesForeignKeys checks that the condition CanRotate names a foreign key by its kid. A
// kid with special characters must be quoted.
func TestNextNamesForeignKeys(t *testing.T) {
	ring, o := ringOf(t, "a Active 48h", "b Published 48h")
	o.Document = &Document{KIDs: o.Held, Invalid: []string{"x\n\u202e"}}
	plan := Next(ring, o, daily(), today())
	c := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionCanRotate)
	if c.Reason != v1alpha1.ReasonForeignKey || !strings.Contains(c.Message, `"x\n\u202e"`) {
		t.Errorf("%+v", c)
	}
}

func TestPolicyValidate(t *testing.T) {
	for field, edit := range map[string]func(*Policy){
		"Issuer":         func(p *Policy) { p.Issuer = "" },
		"Algorithms":     func(p *Policy) { p.Algorithms = nil },
		`"HS256"`:        func(p *Policy) { p.Algorithms = append(p.Algorithms, "HS256") },
		"PublishDelay":   func(p *Policy) { p.PublishDelay = 0 },
		"RotationPeriod": func(p *Policy) { p.RotationPeriod = 2*p.PublishDelay - 1 },
		"MaxLife":        func(p *Policy) { p.MaxLife = -1 },
	} {
		p := daily()
		edit(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := daily().Validate(); err != nil {
		t.Error(err)
	}
}

// TestPolicyBoundsTheRing checks which schedules Validate accepts. With each accepted schedule, a
// ring has at most plannedKeys keys.
func TestPolicyBoundsTheRing(t *testing.T) {
	all := []v1alpha1.Algorithm{v1alpha1.RS256, v1alpha1.ES256, v1alpha1.ES384}
	for _, tt := range []struct {
		name       string
		algorithms []v1alpha1.Algorithm
		period     time.Duration
		ok         bool
	}{
		{"three algorithms, each for a day", all, day, true},
		{"three algorithms, each for seven hours", all, 7 * time.Hour, true},
		{"three algorithms, each for five hours", all, 5 * time.Hour, false},
		{"one algorithm, for five hours", all[:1], 5 * time.Hour, true},
		{"one algorithm, for two hours", all[:1], 2 * time.Hour, false},
		{"one algorithm, for two minutes", all[:1], 2 * time.Minute, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := daily()
			p.Algorithms, p.PublishDelay, p.RotationPeriod = tt.algorithms, time.Minute, tt.period
			if err := p.Validate(); (err == nil) != tt.ok {
				t.Fatalf("Validate() = %v", err)
			}
			if !tt.ok {
				return
			}
			ring, o, now := &v1alpha1.KeyRing{}, Observation{}, today()
			for made := 0; now.Before(today().Add(10 * day)); now = now.Add(tt.period / 7) {
				for range 4 {
					o.Document, o.Revision = documentOf(ring), ring.Status.Revision
					plan := Next(ring, o, p, now)
					for _, a := range plan.Missing {
						made++
						plan.Status.Keys = append(plan.Status.Keys, v1alpha1.RingKey{
							KID: fmt.Sprint(made), Algorithm: v1alpha1.Algorithm(a), KeyLife: v1alpha1.KeyLife{State: v1alpha1.KeyPending, CreatedAt: stamp(now)},
						})
						o.Held = append(o.Held, fmt.Sprint(made))
					}
					ring.Status = plan.Status
				}
				if n := len(ring.Status.Keys); n > plannedKeys {
					t.Fatalf("%d keys after %v", n, now.Sub(today()))
				}
			}
		})
	}
	for _, life := range []time.Duration{time.Hour, 48 * time.Hour} {
		p := Policy{TrustDomain: spiffeid.RequireTrustDomainFromString("example.org"), PublishDelay: time.Hour, RotationPeriod: 6 * time.Hour, MaxLife: life}
		if err := p.Validate(); (err == nil) != (life == time.Hour) {
			t.Errorf("authorities with leaves of %v: %v", life, err)
		}
	}
}

// TestNextWaitsTheWholeDelay checks that a key waits for the whole delay after it was seen,
// although the API stores whole seconds only.
func TestNextWaitsTheWholeDelay(t *testing.T) {
	ring, o := ringOf(t, "a Active 2400h", "b Pending 1m")
	o.Document = documentOf(ring)
	seen := today().Add(900 * time.Millisecond)
	ring.Status.Keys = Next(ring, o, daily(), seen).Status.Keys[:2]
	for _, tt := range []struct {
		after time.Duration
		want  v1alpha1.KeyState
	}{{day - time.Millisecond, v1alpha1.KeyPublished}, {day + time.Second, v1alpha1.KeyActive}} {
		if got := Next(ring, o, daily(), seen.Add(tt.after)).Status.Keys[1].State; got != tt.want {
			t.Errorf("%v after the key was seen it is %s, want %s", tt.after, got, tt.want)
		}
	}
}

// TestNextPublishesBeforeUse simulates many months in steps of some minutes, with an unreliable
// document. Each key except the first must be in the document for the delay before it signs.
func TestNextPublishesBeforeUse(t *testing.T) {
	ring, p, now := &v1alpha1.KeyRing{}, daily(), today()
	p.RotationPeriod = 5 * day
	seenSince := map[string]time.Time{}
	var o Observation
	made := 0
	for step := range 20000 {
		now = now.Add(17 * time.Minute)
		o.Revision = ring.Status.Revision
		o.Document, o.DocumentErr = nil, nil
		switch {
		case step%7 == 3:
			o.DocumentErr = errors.New("down")
		// an old document, which has only the first key
		case step%500 == 499:
			o.Document = &Document{KIDs: []string{ring.Status.Keys[0].KID}}
		default:
			o.Document = documentOf(ring)
		}
		if o.Document != nil {
			for kid := range seenSince {
				if !o.Document.has(kid) {
					delete(seenSince, kid)
				}
			}
			for _, kid := range o.Document.KIDs {
				if seenSince[kid].IsZero() {
					seenSince[kid] = now
				}
			}
		}
		plan := Next(ring, o, p, now)
		for _, a := range plan.Missing {
			kid := fmt.Sprint(made)
			plan.Status.Keys = append(plan.Status.Keys, v1alpha1.RingKey{KID: kid, Algorithm: v1alpha1.Algorithm(a), KeyLife: v1alpha1.KeyLife{State: v1alpha1.KeyPending, CreatedAt: stamp(now)}})
			o.Held = append(o.Held, kid)
			made++
		}
		for _, k := range plan.Status.Keys {
			became := k.State == v1alpha1.KeyActive && k.ActivatedAt.Time.Equal(now.Truncate(time.Second))
			if became && k.KID != "0" && now.Sub(seenSince[k.KID]) < p.PublishDelay {
				t.Fatalf("step %d: key %s signs after %v in the document", step, k.KID, now.Sub(seenSince[k.KID]))
			}
		}
		before := ring.Status
		ring.Status = plan.Status
		for _, k := range before.Keys {
			gone := !slices.ContainsFunc(ring.Status.Keys, func(n v1alpha1.RingKey) bool { return n.KID == k.KID })
			if gone && k.RemovedAt == nil {
				t.Fatalf("step %d: key %s was forgotten while %s", step, k.KID, k.State)
			}
		}
	}
	if made < 40 {
		t.Errorf("only %d keys in %v", made, now.Sub(today()))
	}
}
