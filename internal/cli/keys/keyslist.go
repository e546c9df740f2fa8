package keys

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/plain"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// ringReport is a ring in the output of "lanyard keys list".
type ringReport struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Issuer is empty if the token server has not yet written the ring's status, or if the ring is
	// for X.509-SVIDs only.
	Issuer string `json:"issuer,omitempty"`
	// TrustDomain is empty if the ring does not belong to a trust domain.
	TrustDomain string             `json:"trustDomain,omitempty"`
	Keys        []keyReport        `json:"keys"`
	Conditions  []metav1.Condition `json:"conditions"`
}

// keyReport is a key or an authority in the output of "lanyard keys list".
type keyReport struct {
	// KID is the kid of a key, or the ID of an authority.
	KID string `json:"kid"`
	// Algorithm is the algorithm of a key, or X.509 for an authority.
	Algorithm keyring.Role        `json:"algorithm"`
	State     identityv1.KeyState `json:"state"`
	// Since is when the key entered its state.
	Since metav1.Time `json:"since"`
	// Next is a text that says what happens to the key next. It is empty if nothing will happen.
	Next string `json:"next,omitempty"`
	// Certificate is an authority's certificate, PEM; empty for a key.
	Certificate string `json:"certificate,omitempty"`
}

func newKeysList(std frame.IO) *cobra.Command {
	flags := ringFlags{Flags: cluster.Flags{Std: std}}
	c := &cobra.Command{
		Use:   "list",
		Short: "Show each key, its state, and what happens to it next",
		Long: `Show each key, its state, and what happens to it next.

A key is Pending, Published, Active, Retiring and Removed, in this order, or Revoked. Below the table is what hinders the
ring, with the command that helps.`,
		Example: `  lanyard keys list

  # The keys that sign, for a script
  lanyard keys list -o json | jq -r '.keys[] | select(.state == "Active") | .kid'

  # The CAs that a service must trust for SPIFFE certificates
  lanyard keys list --ring spiffe -o json | jq -r '.keys[].certificate // empty'`,
	}
	output := frame.OutputFlag(c, frame.Table, frame.JSON, frame.YAML)
	flags.AddTo(c)
	c.RunE = flags.withRing(func(_ context.Context, _ *cluster.Client, ring *identityv1.KeyRing, _ []string) error {
		r := reportRing(ring, time.Now())
		return frame.Write(std.Out, output, r, r.table)
	})
	return c
}

// reportRing describes a ring.
func reportRing(ring *identityv1.KeyRing, now time.Time) ringReport {
	r := ringReport{
		Namespace: ring.Namespace, Name: ring.Name, Issuer: ring.Status.Issuer, TrustDomain: ring.Status.TrustDomain,
		Keys: []keyReport{}, Conditions: append([]metav1.Condition{}, ring.Status.Conditions...),
	}
	for _, key := range keyring.Entries(&ring.Status) {
		report := keyReport{KID: key.ID, Algorithm: key.Role, State: key.State, Since: since(key), Next: nextStep(ring, key, now)}
		if key.Authority != nil && keyring.Public(key.State) {
			report.Certificate = key.Authority.Certificate
		}
		r.Keys = append(r.Keys, report)
	}
	return r
}

// table writes the keys, and below them the conditions that are not True.
func (r ringReport) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	report.Line(t, "KID", "ALGORITHM", "STATE", "SINCE", "NEXT")
	for _, k := range r.Keys {
		report.Line(t, k.KID, string(k.Algorithm), string(k.State), stamp(k.Since.Time), k.Next)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range r.Conditions {
		if c.Status == metav1.ConditionTrue {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s is %s, %s: %s\n", plain.Text(c.Type), c.Status, plain.Text(c.Reason), plain.Text(c.Message)); err != nil {
			return err
		}
	}
	return nil
}

// since returns when a key entered its state.
func since(key keyring.Entry) metav1.Time {
	at := map[identityv1.KeyState]*metav1.Time{
		identityv1.KeyPublished: key.PublishedAt, identityv1.KeyActive: key.ActivatedAt, identityv1.KeyRetiring: key.RetiredAt,
		identityv1.KeyRemoved: key.RemovedAt, identityv1.KeyRevoked: key.RemovedAt,
	}[key.State]
	return *cmp.Or(at, &key.CreatedAt)
}

// nextStep returns what happens to a key next; empty if nothing will happen.
func nextStep(ring *identityv1.KeyRing, key keyring.Entry, now time.Time) string {
	if slices.Contains(ring.Spec.Revoke, key.ID) && key.State != identityv1.KeyRevoked {
		return "is about to be revoked"
	}
	switch key.State {
	case identityv1.KeyPending:
		return "waits until it is seen in the public document"
	case identityv1.KeyPublished:
		if ready := since(key).Add(ring.Status.PublishDelay.Duration); now.Before(ready) {
			return "may sign from " + stamp(ready)
		}
		return "signs when a rotation is due: lanyard keys rotate"
	case identityv1.KeyActive:
		return "signs until its successor takes over"
	case identityv1.KeyRetiring:
		if c, err := keyring.ConsequencesOf(ring, key.ID, now); err == nil {
			return "leaves the public document at " + stamp(c.ValidUntil)
		}
	case identityv1.KeyRemoved, identityv1.KeyRevoked:
	}
	return ""
}

// stamp formats a time as RFC 3339, in UTC.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// activeKeys returns the keys of a ring that sign.
func activeKeys(ring *identityv1.KeyRing) []keyring.Entry {
	return slices.DeleteFunc(keyring.Entries(&ring.Status), func(key keyring.Entry) bool { return key.State != identityv1.KeyActive })
}

// stateOf returns the state of a key, as text for the user.
func stateOf(ring *identityv1.KeyRing, kid string) string {
	if key, found := keyring.Find(&ring.Status, kid); found {
		return string(key.State)
	}
	return "not in the ring any more"
}

// hindrance returns the message of the ring's first condition that is not True; empty if all are
// True.
func hindrance(ring *identityv1.KeyRing) string {
	for _, kind := range []string{meta.ConditionReady, identityv1.ConditionCanRotate} {
		if c := apimeta.FindStatusCondition(ring.Status.Conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}
