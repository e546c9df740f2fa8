package imagerepository

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
)

func revisionOf(tags ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(tags, "\n") + "\n"))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// TestTagsAreScannedAsTheTenant lists a tenant's own repository with the role of the tenant's
// account. This is Story 1 of Flux RFC-0010, applied to tags.
func TestTagsAreScannedAsTheTenant(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a", "1.0.0", "1.1.0", "latest", "sha256-0a.sig")
	o, result := w.Reconcile(w.create("tenant-a", "app", nil))

	w.wants(o, metav1.ConditionTrue, meta.ReasonSucceeded, "tags of cloud.example.com/tenant-a/app: 3", false)
	scan := o.Status.LastScanResult
	if scan == nil || scan.TagCount != 3 || scan.Revision != revisionOf("1.0.0", "1.1.0", "latest") ||
		!slices.Equal(scan.LatestTags, []string{"latest", "1.1.0", "1.0.0"}) || time.Since(scan.ScanTime.Time) > time.Minute {
		t.Errorf("%+v", scan)
	}
	if o.Status.CanonicalImageName != "cloud.example.com/tenant-a/app" || !slices.Equal(o.Status.ObservedExclusionList, []string{v1alpha1.DefaultTagExclusion}) {
		t.Errorf("%+v", o.Status)
	}
	if id := o.Status.Identity; id == nil || id.Subject != "system:serviceaccount:tenant-a:puller" || id.CloudIdentity != "role/tenant-a" {
		t.Errorf("identity %+v", id)
	}
	if result.RequeueAfter < 9*time.Minute || result.RequeueAfter > 11*time.Minute {
		t.Errorf("again after %s", result.RequeueAfter)
	}

	// Only a change of the tags changes the revision.
	same, _ := w.Reconcile(o)
	w.registry.tags["tenant-a/app"] = []string{"1.0.0", "1.1.0", "1.2.0", "latest"}
	more, _ := w.Reconcile(o)
	if same.Status.LastScanResult.Revision != scan.Revision || more.Status.LastScanResult.Revision == scan.Revision || more.Status.LastScanResult.TagCount != 4 {
		t.Errorf("%+v, then %+v", same.Status.LastScanResult, more.Status.LastScanResult)
	}
	if len(w.Cloud.Exchanges()) != 1 {
		t.Errorf("%d exchanges for three scans", len(w.Cloud.Exchanges()))
	}
}

// TestObjectsAtRestAreNotWritten checks that a scan with unchanged tags writes no status. A scan of
// another repository writes the status, even if the tags are the same.
func TestObjectsAtRestAreNotWritten(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a", "1.0.0")
	o, _ := w.Reconcile(w.create("tenant-a", "app", nil))
	earlier := metav1.NewTime(time.Now().Add(-time.Hour).UTC().Truncate(time.Second))
	o.Status.LastScanResult.ScanTime = earlier
	if err := w.Kube.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	written := o.ResourceVersion
	o, _ = w.Reconcile(o)
	if o.ResourceVersion != written || !o.Status.LastScanResult.ScanTime.Equal(&earlier) {
		t.Errorf("written: %+v", o.Status)
	}
	w.Edit(o, func(o *v1alpha1.ImageRepository) {
		o.Spec.Image, o.Spec.Provider, o.Spec.ServiceAccountName = publicHost+"/tenant-a/app", "generic", ""
	})
	o, _ = w.Reconcile(o)
	if o.Status.LastScanResult == nil || time.Since(o.Status.LastScanResult.ScanTime.Time) > time.Minute {
		t.Errorf("%+v", o.Status)
	}
}

func TestManyTagsLeaveASmallStatus(t *testing.T) {
	w := newWorld(t)
	tags := make([]string, 5000)
	for i := range tags {
		tags[i] = fmt.Sprintf("1.%04d.0", i)
	}
	w.tenant("tenant-a", tags...)
	o, _ := w.Reconcile(w.create("tenant-a", "app", nil))
	scan := o.Status.LastScanResult
	if scan == nil || scan.TagCount != 5000 || len(scan.LatestTags) != 10 || scan.LatestTags[0] != "1.4999.0" || w.registry.pages() != 100 {
		t.Errorf("%+v in %d pages", scan, w.registry.pages())
	}
}

// TestRefusals checks the reason and the message of each refusal. The results of the last scan must
// stay in the status.
func TestRefusals(t *testing.T) {
	for what, c := range map[string]struct {
		edit    func(*v1alpha1.ImageRepository)
		reason  string
		message string
		stalled bool
		quiet   bool // true if the registry must serve no tags
	}{
		"another tenant's repository": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.Image = cloudHost + "/tenant-b/app" },
			reason: meta.ReasonRegistryRefused, message: "as role/tenant-a: registry cloud.example.com: HTTP 403 Forbidden: DENIED", quiet: true,
		},
		"a repository that does not exist": {
			edit: func(o *v1alpha1.ImageRepository) {
				o.Spec.Image, o.Spec.Provider, o.Spec.ServiceAccountName = publicHost+"/tenant-a/none", "generic", ""
			},
			reason: meta.ReasonRegistryRefused, message: "spec.image: registry public.example.com: HTTP 404",
		},
		"an account that the role does not trust": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.ServiceAccountName = "other" },
			reason: "TrustRefused", message: "does not trust system:serviceaccount:tenant-a:other", quiet: true,
		},
		"a host that is not the cloud's": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.Image = publicHost + "/tenant-a/app" },
			reason: "EndpointRefused", message: "name a registry of the cloud", stalled: true, quiet: true,
		},
		"a cloud without an account": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.ServiceAccountName = "" },
			reason: "NotGranted", message: "set spec.serviceAccountName", stalled: true, quiet: true,
		},
		"a cloud that this build does not have": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.Provider = "gcp" },
			reason: meta.ReasonUnsupportedProvider, message: "spec.provider", stalled: true, quiet: true,
		},
		"a scheme": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.Image = "oci://" + cloudHost + "/tenant-a/app" },
			reason: meta.ReasonInvalidURL, message: "spec.image: the image has a scheme", stalled: true, quiet: true,
		},
		"a tag": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.Image += ":1.0.0" },
			reason: meta.ReasonInvalidURL, message: "spec.image: it has a tag", stalled: true, quiet: true,
		},
		"a short name": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.Image = "library/alpine" },
			reason: meta.ReasonInvalidURL, message: "registry's host", stalled: true, quiet: true,
		},
		"an exclusion that is no expression": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.ExclusionList = []string{"ok", "("} },
			reason: meta.ReasonInvalidSpec, message: "spec.exclusionList[1]: ", stalled: true, quiet: true,
		},
		"exclusions that are too many": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.ExclusionList = slices.Repeat([]string{"x"}, 26) },
			reason: meta.ReasonInvalidSpec, message: "spec.exclusionList: there are more than 25", stalled: true, quiet: true,
		},
		"an interval out of bounds": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.Interval.Duration = time.Millisecond },
			reason: meta.ReasonInvalidSpec, message: "spec.interval", stalled: true, quiet: true,
		},
		"a secret with a cloud": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.SecretRef = &meta.LocalReference{Name: "pull"} },
			reason: meta.ReasonInvalidSpec, message: "spec.secretRef", stalled: true, quiet: true,
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.tenant("tenant-a", "1.0.0")
			w.tenant("tenant-b", "2.0.0")
			o, _ := w.Reconcile(w.create("tenant-a", "app", nil))
			found, pages := o.Status.LastScanResult, w.registry.pages()
			w.Edit(o, c.edit)
			o, result := w.Reconcile(o)
			w.wants(o, metav1.ConditionFalse, c.reason, c.message, c.stalled)
			if kept := o.Status.LastScanResult; kept == nil || kept.Revision != found.Revision || o.Status.CanonicalImageName != "cloud.example.com/tenant-a/app" {
				t.Errorf("what was found before is %+v of %s", kept, o.Status.CanonicalImageName)
			}
			if (result.RequeueAfter == 0) != c.stalled {
				t.Errorf("again after %s", result.RequeueAfter)
			}
			if asked := w.registry.pages() - pages; c.quiet && asked > 0 {
				t.Errorf("%d lists were asked for", asked)
			}
		})
	}
}

func TestExclusions(t *testing.T) {
	for what, c := range map[string]struct {
		list     []string
		observed []string
		tags     int
	}{
		"absent, as in objects older than the default": {nil, []string{v1alpha1.DefaultTagExclusion}, 3},
		"empty":                 {[]string{}, nil, 4},
		"all":                   {[]string{"."}, []string{"."}, 0},
		"several, not anchored": {[]string{"rc", `^v?0\.`}, []string{"rc", `^v?0\.`}, 2},
	} {
		w := newWorld(t)
		w.tenant("tenant-a", "0.9.0", "1.0.0", "1.1.0-rc1", "sha256-0a.sig")
		o, _ := w.Reconcile(w.create("tenant-a", "app", func(o *v1alpha1.ImageRepository) { o.Spec.ExclusionList = c.list }))
		if scan := o.Status.LastScanResult; scan == nil || scan.TagCount != c.tags || !slices.Equal(o.Status.ObservedExclusionList, c.observed) {
			t.Errorf("%s: %+v with %q", what, scan, o.Status.ObservedExclusionList)
		}
	}
}

// TestGeneric checks the credentials of provider generic: no credential, the Secret of
// spec.secretRef, and the image pull secrets of the ServiceAccount.
func TestGeneric(t *testing.T) {
	entries := func(password string) string {
		return fmt.Sprintf(`{%q:{"username":"robot","password":%q}}`, passHost, password)
	}
	for what, c := range map[string]struct {
		edit    func(*v1alpha1.ImageRepository)
		reason  string
		message string
		subject string
		pull    []string // image pull secrets of the account "runner"
	}{
		"nobody": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.Image = publicHost + "/tenant-a/app" },
			reason: meta.ReasonSucceeded, message: ": 1",
		},
		"a secret": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.SecretRef = &meta.LocalReference{Name: "pull"} },
			reason: meta.ReasonSucceeded, message: ": 1", subject: "secret:tenant-a:pull",
		},
		"image pull secrets": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.ServiceAccountName = "runner" },
			reason: meta.ReasonSucceeded, message: ": 1", subject: "system:serviceaccount:tenant-a:runner", pull: []string{"pull"},
		},
		"image pull secrets, one of them missing": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.ServiceAccountName = "runner" },
			reason: meta.ReasonSucceeded, message: ": 1", subject: "system:serviceaccount:tenant-a:runner", pull: []string{"gone", "pull"},
		},
		"image pull secrets of the older type": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.ServiceAccountName = "runner" },
			reason: meta.ReasonSucceeded, message: ": 1", subject: "system:serviceaccount:tenant-a:runner", pull: []string{"old"},
		},
		"the same image pull secret many times": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.ServiceAccountName = "runner" },
			reason: meta.ReasonSucceeded, message: ": 1", subject: "system:serviceaccount:tenant-a:runner", pull: slices.Repeat([]string{"pull"}, 17),
		},
		"too many image pull secrets": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.ServiceAccountName = "runner" },
			reason: meta.ReasonSecretRefused, message: "imagePullSecrets of ServiceAccount tenant-a/runner: there are more than 16",
			pull: strings.Split("abcdefghijklmnopq", ""),
		},
		"no password where one is needed": {
			reason: meta.ReasonRegistryRefused, message: "HTTP 401",
		},
		"a wrong password": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.SecretRef = &meta.LocalReference{Name: "wrong"} },
			reason: meta.ReasonRegistryRefused, message: "as secret:tenant-a:wrong: registry pass.example.com: HTTP 401", subject: "secret:tenant-a:wrong",
		},
		"no such secret": {
			edit:   func(o *v1alpha1.ImageRepository) { o.Spec.SecretRef = &meta.LocalReference{Name: "gone"} },
			reason: meta.ReasonSecretRefused, message: "spec.secretRef: Secret gone: does not exist",
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.registry.tags["tenant-a/app"] = []string{"1.0.0"}
			for name, password := range map[string]string{"pull": "hunter2", "wrong": "hunter2-of-yesterday"} {
				w.Secret("tenant-a", name, corev1.SecretTypeDockerConfigJson, map[string]string{corev1.DockerConfigJsonKey: `{"auths":` + entries(password) + `}`})
			}
			w.Secret("tenant-a", "old", corev1.SecretTypeDockercfg, map[string]string{corev1.DockerConfigKey: entries("hunter2")})
			controllertest.CreateAccount(t, w.Kube, "tenant-a", "runner", c.pull...)
			o, _ := w.Reconcile(w.create("tenant-a", "app", func(o *v1alpha1.ImageRepository) {
				o.Spec.Image, o.Spec.Provider, o.Spec.ServiceAccountName = passHost+"/tenant-a/app", "generic", ""
				if c.edit != nil {
					c.edit(o)
				}
			}))
			status := metav1.ConditionFalse
			if c.reason == meta.ReasonSucceeded {
				status = metav1.ConditionTrue
			}
			w.wants(o, status, c.reason, c.message, false)
			subject := ""
			if o.Status.Identity != nil {
				subject = o.Status.Identity.Subject
			}
			if subject != c.subject {
				t.Errorf("asked as %q, want %q", subject, c.subject)
			}
		})
	}
}

// TestHostileRegistries checks registries that send endless lists, ask for a pause or do not
// answer. The object must fail with a reason, after few requests, and recover later.
func TestHostileRegistries(t *testing.T) {
	for what, c := range map[string]struct {
		answer  func(w http.ResponseWriter, r *http.Request) bool
		reason  string
		message string
		after   time.Duration // minimum pause before the retry
		most    int           // largest number of pages that may be requested
		// timeout is spec.timeout while the registry is hostile. Zero means five minutes, so that
		// no timeout occurs even on a busy machine.
		timeout time.Duration
	}{
		"a circle": {
			answer: func(w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("Link", "<"+r.URL.Path+`?last=x>; rel="next"`)
				_, _ = io.WriteString(w, `{"tags":["a"]}`)
				return true
			},
			reason: meta.ReasonRegistryRefused, message: "leads back to a page that was read before", most: 2,
		},
		"ever new tags": {
			answer: func(w http.ResponseWriter, r *http.Request) bool {
				n := 0
				_, _ = fmt.Sscanf(r.URL.Query().Get("last"), "%d", &n)
				w.Header().Set("Link", fmt.Sprintf(`<%s?last=%d>; rel="next"`, r.URL.Path, n+1))
				var tags []string
				for i := range 2000 {
					tags = append(tags, fmt.Sprintf(`"%d.%d"`, n, i))
				}
				_, _ = io.WriteString(w, `{"tags":[`+strings.Join(tags, ",")+`]}`)
				return true
			},
			reason: meta.ReasonArchiveRefused, message: "more than 100000 tags; remove old tags", most: 51,
		},
		"a link to a host of the attacker's": {
			answer: func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Link", `<https://evil.example.com/v2/tenant-a/app/tags/list?last=x>; rel="next"`)
				_, _ = io.WriteString(w, `{"tags":["a"]}`)
				return true
			},
			reason: meta.ReasonRegistryRefused, message: "leads elsewhere", most: 1,
		},
		"a pause": {
			answer: func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Retry-After", "300")
				refuse(w, http.StatusTooManyRequests, "TOOMANYREQUESTS", "rate exceeded")
				return true
			},
			reason: meta.ReasonRegistryUnreachable, message: "HTTP 429", after: 280 * time.Second, most: 1,
		},
		"silence": {
			answer: func(_ http.ResponseWriter, r *http.Request) bool {
				<-r.Context().Done()
				return true
			},
			reason: meta.ReasonRegistryUnreachable, message: "raise spec.timeout", most: 1, timeout: 2 * time.Second,
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.tenant("tenant-a", "1.0.0")
			o, _ := w.Reconcile(w.create("tenant-a", "app", nil))
			patience := func(d time.Duration) {
				w.Edit(o, func(o *v1alpha1.ImageRepository) { o.Spec.Timeout = &metav1.Duration{Duration: d} })
			}
			patience(cmp.Or(c.timeout, 5*time.Minute))
			found, pages := o.Status.LastScanResult, w.registry.pages()
			w.registry.answer(c.answer)
			o, result := w.Reconcile(o)
			w.wants(o, metav1.ConditionFalse, c.reason, c.message, false)
			if result.RequeueAfter < c.after || result.RequeueAfter == 0 {
				t.Errorf("again after %s, want at least %s", result.RequeueAfter, c.after)
			}
			if asked := w.registry.pages() - pages; asked > c.most {
				t.Errorf("%d pages, want at most %d", asked, c.most)
			}
			if o.Status.LastScanResult.Revision != found.Revision {
				t.Errorf("what was found before is gone: %+v", o.Status.LastScanResult)
			}
			w.registry.answer(nil)
			patience(5 * time.Minute)
			o, _ = w.Reconcile(o)
			w.wants(o, metav1.ConditionTrue, meta.ReasonSucceeded, ": 1", false)
		})
	}
}
