package e2e

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// TestSpec tests the fields that select what is pulled, and how it is published.
func TestSpec(t *testing.T) {
	beside(t)
	tn := newTenant(t, "spec")
	first := tn.push(t, "1.0.0", layer(t, file("app.yaml", "first"), file("README.md", "read me")))
	second := tn.pushFile(t, "1.2.0", "second")
	candidate := tn.pushFile(t, "1.3.0-rc.1", "candidate")
	copied := layer(t, file("app.yaml", "as it is"))
	tn.push(t, "copy", copied)

	o := tn.object("app")
	create(t, o)
	await(t, o, "a tag", revision(first))
	if got := names(t, o); !slices.Equal(got, []string{"README.md", "app.yaml"}) {
		t.Errorf("the artifact holds %v", got)
	}
	set := func(change func(s *v1alpha1.OCIRepositorySpec)) {
		t.Helper()
		patch(t, o, func(o *v1alpha1.OCIRepository) { change(&o.Spec) })
	}
	set(func(s *v1alpha1.OCIRepositorySpec) { ignore := "*.md"; s.Ignore = &ignore })
	await(t, o, "without what is ignored", func(o *v1alpha1.OCIRepository) error {
		if err := revision(first)(o); err != nil {
			return err
		}
		return wantf(slices.Equal(names(t, o), []string{"app.yaml"}), "it holds %v", names(t, o))
	})
	set(func(s *v1alpha1.OCIRepositorySpec) { s.Ref = &v1alpha1.OCIRepositoryRef{Semver: "~1"} })
	await(t, o, "the highest version", revision(second))
	set(func(s *v1alpha1.OCIRepositorySpec) {
		s.Ref = &v1alpha1.OCIRepositoryRef{Semver: ">=1.0.0-0", SemverFilter: ".*-rc.*"}
	})
	await(t, o, "the highest candidate", revision(candidate))
	set(func(s *v1alpha1.OCIRepositorySpec) { s.Ref = &v1alpha1.OCIRepositoryRef{Semver: ">=7"} })
	await(t, o, "no version", failing("ReferenceNotFound", ">=7"))
	set(func(s *v1alpha1.OCIRepositorySpec) { s.Ref = &v1alpha1.OCIRepositoryRef{Digest: first} })
	await(t, o, "a digest", func(o *v1alpha1.OCIRepository) error {
		if err := pulled(o); err != nil {
			return err
		}
		return wantf(o.Status.Artifact.Revision == first, "its revision is %s", o.Status.Artifact.Revision)
	})
	set(func(s *v1alpha1.OCIRepositorySpec) {
		s.Ref = &v1alpha1.OCIRepositoryRef{Tag: "copy"}
		s.LayerSelector = &v1alpha1.OCILayerSelector{Operation: v1alpha1.LayerCopy}
	})
	await(t, o, "the layer as it is", func(o *v1alpha1.OCIRepository) error {
		if err := pulled(o); err != nil {
			return err
		}
		return wantf(o.Status.Artifact.Digest == digest(copied), "its digest is %s", o.Status.Artifact.Digest)
	})
	wantServed(t, o)

	set(func(s *v1alpha1.OCIRepositorySpec) { s.Suspend = true })
	await(t, o, "it is suspended", func(o *v1alpha1.OCIRepository) error {
		return wantf(ready(o).Reason == meta.ReasonSuspended, "Ready is %+v", ready(o))
	})
	tn.push(t, "copy", layer(t, file("app.yaml", "newer")))
	wantServed(t, o)
	set(func(s *v1alpha1.OCIRepositorySpec) { s.Suspend = false })
	await(t, o, "it goes on", func(o *v1alpha1.OCIRepository) error {
		if err := pulled(o); err != nil {
			return err
		}
		return wantf(o.Status.Artifact.Digest != digest(copied), "it still has the former artifact")
	})
}

// names returns the file names of an object's artifact, sorted.
func names(t *testing.T, o *v1alpha1.OCIRepository) []string {
	t.Helper()
	res := get(t, o.Status.Artifact.URL)
	defer res.Body.Close()
	zip, err := gzip.NewReader(res.Body)
	must(t, "read an artifact", err)
	var found []string
	archive := tar.NewReader(zip)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(found)
			return found
		}
		must(t, "read an artifact", err)
		if header.Typeflag == tar.TypeReg {
			found = append(found, strings.TrimPrefix(header.Name, "./"))
		}
	}
}

// TestArtifactURL asserts that an artifact can be fetched only with its complete URL.
func TestArtifactURL(t *testing.T) {
	beside(t)
	tn := newTenant(t, "urls")
	tn.pushFile(t, "1.0.0", "app")
	one, other := tn.object("one"), tn.object("other")
	create(t, one)
	create(t, other)
	await(t, one, "the artifact", pulled)
	await(t, other, "the artifact", pulled)
	path := strings.TrimPrefix(one.Status.Artifact.URL, controller.URL("artifacts"))
	parts := strings.Split(path, "/") // the parts are an empty string, kind, namespace, name, key and file
	if len(parts) != 6 {
		t.Fatalf("the URL has %d parts", len(parts))
	}
	for name, guess := range map[string]string{
		"root":                     "/",
		"a namespace":              strings.Join(parts[:3], "/") + "/",
		"an object":                strings.Join(parts[:4], "/") + "/",
		"a key":                    strings.Join(parts[:5], "/") + "/",
		"another object's name":    strings.Replace(path, "/one/", "/other/", 1),
		"another key":              strings.Replace(path, parts[4], strings.Repeat("0", 64), 1),
		"the path in the status":   "/" + one.Status.Artifact.Path,
		"a way around":             path[:strings.LastIndex(path, "/")] + "/../" + parts[4] + "/" + parts[5],
		"the store's key":          "/.key",
		"what is not there at all": "/nothing",
	} {
		if code := status(t, controller.URL("artifacts")+guess); code != 404 {
			t.Errorf("%s (%s) answers HTTP %d", name, guess, code)
		}
	}
	wantServed(t, one)
}

// TestControllerIdentity lends the controller's own identity to namespaces with a label. Objects in
// other namespaces must not get the identity. Objects with a tenant's proxy must not get it either.
// The controller gets its identity as a Pod on EKS does: from a role's name and a token file.
func TestControllerIdentity(t *testing.T) {
	alone(t, "it changes what the chart grants all controllers")
	const role = "lanyard-controller"
	subject := "system:serviceaccount:" + local.Namespace + ":lanyard-controller"
	tokenFile := filepath.Join(t.TempDir(), "token")
	must(t, "write the controller's token", os.WriteFile(tokenFile, []byte(token(t, local.Namespace, "lanyard-controller", stsAudience)), 0o600))
	install(t, map[string]any{
		"extraEnv": environment("AWS_WEB_IDENTITY_TOKEN_FILE="+tokenFile, "AWS_ROLE_ARN="+roleARN(role), "AWS_REGION="+local.Region),
		"identity": map[string]any{
			"controllerNamespaces": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"e2e.lanyard.dev/lent": "yes"}}},
		},
	})
	s := takeShard(t)
	s.start(t, "lending", nil)
	lent, other := s.newTenant(t, "lent"), s.newTenant(t, "not-lent")
	putRole(t, role, subject, "*")
	patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: lent.namespace}}, func(n *corev1.Namespace) {
		n.Labels["e2e.lanyard.dev/lent"] = "yes"
	})
	pull := func(tn *tenant, name string) *v1alpha1.OCIRepository {
		tn.pushFile(t, "1.0.0", "app")
		o := tn.object(name)
		o.Spec.ServiceAccountName = ""
		return o
	}
	allowed, refused, detour := pull(lent, "app"), pull(other, "app"), pull(lent, "detour")
	create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: lent.namespace, Name: "proxy"}, StringData: map[string]string{"address": "http://proxy.example.com:3128"},
	})
	detour.Spec.ProxySecretRef = &meta.LocalReference{Name: "proxy"}
	for _, o := range []*v1alpha1.OCIRepository{allowed, refused, detour} {
		create(t, o)
	}
	await(t, allowed, "the artifact", pulled)
	if id := allowed.Status.Identity; id == nil || id.Subject != "controller" {
		t.Errorf("status.identity is %+v; want the controller", id)
	}
	await(t, refused, "the refusal", failing("NotGranted", "--controller-identity-namespaces", other.namespace))
	await(t, detour, "the refusal", failing("InvalidSpec", "spec.proxySecretRef", "the controller's identity"))
	for _, call := range exchanges(subject, 0) {
		if call.Role != roleARN(role) {
			t.Errorf("the controller assumed %s", call.Role)
		}
	}
	if n := len(resolutions(other, role, 0)); n != 0 {
		t.Errorf("a namespace that was lent nothing was read for %d times", n)
	}
}
