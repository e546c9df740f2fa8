package ocirepository

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
)

func TestEveryTenantFetchesAsItself(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a", roleA)
	w.tenant("tenant-b", roleB)
	for namespace, role := range map[string]string{"tenant-a": roleA, "tenant-b": roleB} {
		o, result := w.Reconcile(w.create(namespace, "app", nil))
		if c := controllertest.Ready(o); c.Status != metav1.ConditionTrue || c.Reason != meta.ReasonSucceeded {
			t.Fatalf("%s: Ready is %+v", namespace, c)
		}
		id := o.Status.Identity
		if id == nil || id.Subject != "system:serviceaccount:"+namespace+":puller" || id.CloudIdentity != role || id.Provider != "aws" {
			t.Errorf("%s: identity %+v", namespace, id)
		}
		if got := w.Served(o)["hello.txt"]; got != "hello "+namespace {
			t.Errorf("%s is served %q", namespace, got)
		}
		if a := o.Status.Artifact; !strings.HasPrefix(a.Revision, "v1@sha256:") || a.Size == 0 || a.Metadata["org.opencontainers.image.revision"] != "v1" {
			t.Errorf("%s: artifact %+v", namespace, a)
		}
		// A pause is changed by the jitter and then rounded up by less than a second, so that
		// several objects are due together.
		if d := o.Spec.Interval.Duration; result.RequeueAfter < d*95/100 || result.RequeueAfter > d*105/100+time.Second {
			t.Errorf("%s: again after %s, want %s give or take 5 %% and a second", namespace, result.RequeueAfter, d)
		}
		if o.Finalizers[0] != meta.Finalizer {
			t.Errorf("%s: finalizers %v", namespace, o.Finalizers)
		}
	}
	if told := w.Told(); len(told) != 2 || !strings.HasPrefix(told[0], "Normal NewArtifact stored artifact for revision v1@sha256:") {
		t.Errorf("events %q", told)
	}
}

func TestUnchangedRevisionIsNeitherPulledNorWritten(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a", roleA)
	o := w.create("tenant-a", "app", nil)
	first, _ := w.Reconcile(o)
	w.Told()
	pulls, patches := w.registry.pulls(), w.Writes.Statuses
	second, _ := w.Reconcile(o)
	if got := w.registry.pulls(); got != pulls {
		t.Errorf("%d more blobs were fetched", got-pulls)
	}
	if w.Writes.Statuses != patches || second.ResourceVersion != first.ResourceVersion {
		t.Errorf("the status was written %d times without a change", w.Writes.Statuses-patches)
	}
	if got := len(w.Cloud.Exchanges()); got != 1 {
		t.Errorf("%d exchanges, want 1", got)
	}
	if told := w.Told(); len(told) != 0 {
		t.Errorf("events %q", told)
	}
}

func TestManyObjectsOfOneAccountMakeOneExchange(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a", roleA)
	for i := range 10 {
		o := w.create("tenant-a", "app-"+string(rune('a'+i)), nil)
		for range 3 {
			w.Reconcile(o)
		}
	}
	if got := len(w.Cloud.Exchanges()); got != 1 {
		t.Errorf("%d exchanges for 10 objects and 3 reconciliations each, want 1", got)
	}
}

func TestMovedTagAndChangedSpecMakeANewArtifact(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a", roleA)
	o, _ := w.Reconcile(w.create("tenant-a", "app", nil))
	before := o.Status.Artifact
	w.Told()

	w.registry.push(t, "tenant-a/app", "v1", layerOf(t, map[string]string{"hello.txt": "moved", "notes.md": "x", "logo.png": "x"}))
	o, _ = w.Reconcile(o)
	if _, there := w.Served(o)["logo.png"]; there || o.Status.Artifact.Revision == before.Revision || w.Served(o)["hello.txt"] != "moved" {
		t.Errorf("after the tag has moved: %+v", o.Status.Artifact)
	}
	if told := w.Told(); len(told) != 1 || !strings.HasPrefix(told[0], "Normal NewArtifact") {
		t.Errorf("events %q", told)
	}

	moved := o.Status.Artifact
	ignore := "*.md"
	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Ignore = &ignore })
	o, _ = w.Reconcile(o)
	if _, there := w.Served(o)["notes.md"]; there || o.Status.Artifact.Revision != moved.Revision || o.Status.Artifact.Digest == moved.Digest {
		t.Errorf("after spec.ignore has changed: %+v", o.Status.Artifact)
	}

	w.Edit(o, func(o *v1alpha1.OCIRepository) {
		o.Spec.LayerSelector = &v1alpha1.OCILayerSelector{Operation: v1alpha1.LayerCopy}
	})
	o, _ = w.Reconcile(o)
	if w.Served(o)["notes.md"] != "x" {
		t.Error("operation copy left something out")
	}
}

// TestURLFollowsTheAddress checks that the artifact's URL changes with the controller's address,
// without a new pull.
func TestURLFollowsTheAddress(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a", roleA)
	o, _ := w.Reconcile(w.create("tenant-a", "app", nil))
	pulls := w.registry.pulls()
	w.Shared.Artifacts.BaseURL = "http://elsewhere.example.com"
	if o, _ = w.Reconcile(o); !strings.HasPrefix(o.Status.Artifact.URL, "http://elsewhere.example.com/ocirepository/tenant-a/app/") || w.registry.pulls() != pulls {
		t.Errorf("%s after %d pulls more", o.Status.Artifact.URL, w.registry.pulls()-pulls)
	}
}

func TestRefusalsNameTheFix(t *testing.T) {
	for name, c := range map[string]struct {
		edit      func(*v1alpha1.OCIRepository)
		setup     func(*world)
		reason    string
		says      string
		stalled   bool
		identity  string // cloud identity in the status
		exchanges int
	}{
		"ServiceAccount does not exist": {
			edit:   func(o *v1alpha1.OCIRepository) { o.Spec.ServiceAccountName = "nobody" },
			reason: "SubjectNotFound", says: "create ServiceAccount nobody", stalled: true,
		},
		"ServiceAccount without annotation": {
			setup:  func(w *world) { w.account("tenant-b", "uid", "") },
			reason: "IdentityMissing", says: "annotate the ServiceAccount", stalled: true,
		},
		"malformed role": {
			setup:  func(w *world) { w.account("tenant-b", "uid", "arn:aws:iam::role/x") },
			reason: "IdentityInvalid", says: "write role/<name>", stalled: true,
		},
		"other tenant's role": {
			setup:  func(w *world) { w.account("tenant-b", "uid", roleA) },
			reason: "TrustRefused", says: "have the role's trust policy name the subject", exchanges: 1,
		},
		"other tenant's repository": {
			edit:   func(o *v1alpha1.OCIRepository) { o.Spec.URL = "oci://" + cloudHost + "/tenant-a/app" },
			reason: meta.ReasonRegistryRefused, says: "as role/tenant-b: registry " + cloudHost + ": HTTP 403 Forbidden: DENIED: role/tenant-b is not authorized to perform: ecr:BatchGetImage",
			identity: roleB, exchanges: 1,
		},
		"host that only looks like the cloud's": {
			edit:   func(o *v1alpha1.OCIRepository) { o.Spec.URL = "oci://cloud.example.com.evil.example/tenant-b/app" },
			reason: "EndpointRefused", says: "name a registry of the cloud", stalled: true,
		},
		"no ServiceAccount and no grant": {
			edit:   func(o *v1alpha1.OCIRepository) { o.Spec.ServiceAccountName = "" },
			reason: "NotGranted", says: "set spec.serviceAccountName", stalled: true,
		},
		"provider that this build has not": {
			edit:   func(o *v1alpha1.OCIRepository) { o.Spec.Provider = "azure" },
			reason: meta.ReasonUnsupportedProvider, says: "use one of generic, aws", stalled: true,
		},
		"insecure with a cloud": {
			edit:   func(o *v1alpha1.OCIRepository) { o.Spec.Insecure = true },
			reason: meta.ReasonInvalidSpec, says: "remove insecure", stalled: true,
		},
		"secretRef with a cloud": {
			edit:   func(o *v1alpha1.OCIRepository) { o.Spec.SecretRef = &meta.LocalReference{Name: "x"} },
			reason: meta.ReasonInvalidSpec, says: "spec.secretRef", stalled: true,
		},
		"tag in the URL": {
			edit:   func(o *v1alpha1.OCIRepository) { o.Spec.URL += ":v1" },
			reason: meta.ReasonInvalidURL, says: "spec.ref.tag", stalled: true,
		},
		"range that is none": {
			edit:   func(o *v1alpha1.OCIRepository) { o.Spec.Ref = &v1alpha1.OCIRepositoryRef{Semver: "newest"} },
			reason: meta.ReasonInvalidSpec, says: "spec.ref.semver", stalled: true,
		},
		"interval of nothing": {
			edit:   func(o *v1alpha1.OCIRepository) { o.Spec.Interval.Duration = 0 },
			reason: meta.ReasonInvalidSpec, says: "spec.interval", stalled: true,
		},
		"tag that does not exist": {
			edit:   func(o *v1alpha1.OCIRepository) { o.Spec.Ref.Tag = "v9" },
			reason: meta.ReasonReferenceNotFound, says: "push this tag", identity: roleB, exchanges: 1,
		},
		"layer that does not exist": {
			edit:   func(o *v1alpha1.OCIRepository) { o.Spec.LayerSelector = &v1alpha1.OCILayerSelector{MediaType: "a/b"} },
			reason: meta.ReasonLayerNotFound, says: "spec.layerSelector.mediaType", identity: roleB, exchanges: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.tenant("tenant-a", roleA)
			w.tenant("tenant-b", roleB)
			if c.setup != nil {
				c.setup(w)
			}
			o, result := w.Reconcile(w.create("tenant-b", "app", c.edit))
			got := controllertest.Ready(o)
			if got.Status != metav1.ConditionFalse || got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
				t.Errorf("Ready is %s %s %q, want %s and %q", got.Status, got.Reason, got.Message, c.reason, c.says)
			}
			if stalled := result.RequeueAfter == 0; stalled != c.stalled {
				t.Errorf("stalled is %v, want %v", stalled, c.stalled)
			}
			identity := ""
			if o.Status.Identity != nil {
				identity = o.Status.Identity.CloudIdentity
			}
			if identity != c.identity {
				t.Errorf("identity %q, want %q", identity, c.identity)
			}
			if got := len(w.Cloud.Exchanges()); got != c.exchanges {
				t.Errorf("%d exchanges, want %d", got, c.exchanges)
			}
			if o.Status.Artifact != nil {
				t.Errorf("artifact %+v", o.Status.Artifact)
			}
			if told := w.Told(); len(told) != 1 || !strings.HasPrefix(told[0], "Warning "+c.reason) || strings.Contains(told[0], "s3cret") {
				t.Errorf("events %q", told)
			}
			// The same failure again causes no further event.
			w.Reconcile(o)
			if told := w.Told(); len(told) != 0 {
				t.Errorf("events of the second time %q", told)
			}
		})
	}
}
