package keyring

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	lanyardmeta "github.com/lanyard-dev/lanyard/api/meta"
)

// finding is the reason and the message of a condition that is False.
type finding struct{ reason, message string }

// report sets the conditions. Their texts change only if the described facts change, so that an
// unchanged ring is not written again.
func (t *turn) report() {
	t.set(lanyardmeta.ConditionReady, t.notReady(), "every algorithm has an active key")
	t.set(v1alpha1.ConditionCanRotate, t.hindrance(), "the next key of every algorithm takes over when it is due")
}

// notReady returns why the ring cannot sign for one of its roles; nil if it can sign for all.
func (t *turn) notReady() *finding {
	if t.policy.Off() {
		return &finding{
			v1alpha1.ReasonNoKey,
			"the ring is switched off: set spiffe.trustDomain of the Helm chart (--spiffe-trust-domain) to use it again",
		}
	}
	for _, r := range t.policy.roles() {
		active := t.active(r)
		switch {
		case active != nil && t.ended(*active):
			return &finding{
				v1alpha1.ReasonNoKey, fmt.Sprintf("the active authority %s has expired, and no other one can sign yet", active.ID),
			}
		case active != nil && t.held(*active):
		case active != nil:
			return &finding{v1alpha1.ReasonForeignKey, fmt.Sprintf(
				"the active %s %s has no private half: restore its Secret, or run \"%s\"",
				r.noun(), active.ID, command(t.status, "revoke", *active))}
		case t.find(r, Entry.Waiting) != nil:
			return &finding{v1alpha1.ReasonNotPublished, t.howToPublish(*t.find(r, Entry.Waiting))}
		case r == X509 && t.importProblem() != nil:
			return t.importProblem()
		default:
			return &finding{v1alpha1.ReasonNoKey, fmt.Sprintf("there is no %s for %s yet", r.noun(), r)}
		}
	}
	return nil
}

// hindrance returns why the next rotation cannot happen; nil if it can.
func (t *turn) hindrance() *finding {
	if !t.clocksAgree() {
		return &finding{
			v1alpha1.ReasonClockSkew,
			"the clocks of the token server and of the API server differ by more than a minute: set them right",
		}
	}
	if foreign := t.foreignKeys(); foreign != nil {
		return &finding{v1alpha1.ReasonForeignKey, strings.Join(foreign, "; ") +
			": find out who added the key; then revoke a key of the ring by \"lanyard keys revoke\", and publish a document of the ring's keys only"}
	}
	if problem := t.importProblem(); problem != nil {
		return problem
	}
	for _, r := range t.policy.roles() {
		if late := t.lateSuccessor(r); late != nil {
			return late
		}
	}
	return nil
}

// lateSuccessor returns why the successor of a role's active key is late, or nil.
func (t *turn) lateSuccessor(r Role) *finding {
	waiting, active := t.find(r, Entry.Waiting), t.active(r)
	overdue := t.due(r, active)
	if waiting == nil {
		if !overdue {
			return nil
		}
		message := fmt.Sprintf("the active %s of %s is due, and has no successor yet", r.noun(), r)
		if active != nil && active.imported() {
			message += ": put a new CA into the Secret of --spiffe-secret-name"
		}
		return &finding{v1alpha1.ReasonNoKey, message}
	}
	successor := *waiting
	switch {
	case t.observed.DocumentErr != nil && !t.seen(successor) && (overdue || t.unseenForLong(successor)):
		// Omit the error's text, which may change with every attempt. The log has the text.
		return &finding{
			v1alpha1.ReasonDocumentUnreachable,
			"the public document could not be read: see the token server's log; " + t.howToPublish(successor),
		}
	case overdue || t.unseenForLong(successor):
		return &finding{v1alpha1.ReasonNotPublished, t.howToPublish(successor)}
	}
	return nil
}

// unseenForLong reports whether a key has been Pending for the publish delay or longer.
func (t *turn) unseenForLong(e Entry) bool {
	return e.State == v1alpha1.KeyPending && !t.now.Before(e.CreatedAt.Add(t.policy.PublishDelay))
}

func (t *turn) howToPublish(e Entry) string { return HowToPublish(t.status, e) }

// HowToPublish returns a sentence that tells people why a waiting key of the ring does not sign
// yet, and what they can do.
func HowToPublish(ring *v1alpha1.KeyRingStatus, e Entry) string {
	if e.State == v1alpha1.KeyPublished && e.PublishedAt != nil {
		why := ""
		if ring.OtherKeysSeen {
			why = " because services may remember keys of a former installation"
		}
		return fmt.Sprintf("%s %s signs at %s, when it has been published for %v%s; \"%s --skip-delay\" skips the delay",
			e.Role.noun(), e.ID, e.PublishedAt.Add(ring.PublishDelay.Duration).UTC().Format(time.RFC3339), ring.PublishDelay.Duration, why,
			command(ring, "confirm", e))
	}
	of := cmp.Or(ring.Issuer, ring.TrustDomain)
	return fmt.Sprintf("%s %s is not in the %s of %s: make the document reachable there, or publish it and run \"%s\"",
		e.Role.noun(), e.ID, e.Role.document(), of, command(ring, "confirm", e))
}

// command returns the command that people run to change the state of a key.
func command(ring *v1alpha1.KeyRingStatus, verb string, e Entry) string {
	words := "lanyard keys " + verb + " "
	if ring.TrustDomain != "" {
		words += "--ring " + SPIFFERing + " "
	}
	return words + e.ID
}

func (t *turn) set(condition string, f *finding, good string) {
	c := metav1.Condition{
		Type: condition, Status: metav1.ConditionTrue, Reason: lanyardmeta.ReasonSucceeded, Message: good,
		ObservedGeneration: t.status.ObservedGeneration, LastTransitionTime: stamp(t.now),
	}
	if f != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, f.reason, f.message
	}
	meta.SetStatusCondition(&t.status.Conditions, c)
}
