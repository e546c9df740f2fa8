package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// downgrade acts as a tenant with a registry at which the controller logs in. The registry then
// sends the controller to a server without TLS. The registry redirects requests for manifests
// and tags to this server, or names this server as the token service for logins.
func downgrade(tn *tenant) {
	t := tn.t
	secure, plain := tn.host("secure"), tn.host("plain")
	var reached atomic.Int64
	tn.serve(t, plain, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	var shown atomic.Int64
	must(t, "serve "+secure, world.Cloud().Handle(secure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		switch how, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/"); {
		case password == "":
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		case how == "realm":
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+plain+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		case how == "":
		default:
			shown.Add(1)
			http.Redirect(w, r, "http://"+plain+r.URL.Path, http.StatusTemporaryRedirect)
		}
	})))
	t.Cleanup(func() { _ = world.Cloud().Handle(secure, nil) })
	login, err := json.Marshal(map[string]any{"auths": map[string]any{secure: map[string]string{"username": "u", "password": "a-password-of-the-tenant"}}})
	must(t, "make a login", err)
	create(t, &corev1.Secret{ObjectMeta: tn.meta("login"), Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: login}})
	var all []client.Object
	for _, how := range []string{"location", "realm"} {
		o, tags := tn.repository(how, secure+"/"+how), tn.image(how+"-tags", secure+"/"+how)
		o.Spec.SecretRef, tags.Spec.SecretRef = &meta.LocalReference{Name: "login"}, &meta.LocalReference{Name: "login"}
		all = append(all, o, tags)
	}
	tn.refused(t, all, []string{plain})
	if reached.Load() > 0 {
		t.Errorf("the server without TLS was asked %d times", reached.Load())
	}
	if shown.Load() == 0 {
		t.Error("no redirect was answered: the attack does not reach what it tries")
	}
}

// nameProxies acts as a tenant that configures proxies on private addresses. The controller dials a
// tenant's proxy itself, so its guard against private addresses must check the proxy's addresses.
func nameProxies(tn *tenant) {
	t := tn.t
	target := tn.host("target")
	tn.serve(t, target, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	_, port, err := net.SplitHostPort(canary(t))
	must(t, "read the canary's port", err)
	hosts := append(private(), "127.1", "[::ffff:127.0.0.1]", "ip6-localhost", "ip6-loopback", "localhost6")
	machine, err := os.Hostname()
	must(t, "read this machine's name", err)
	// If the machine's name resolves at all, it resolves to an address of the machine. So the guard
	// must refuse this name too.
	hosts = append(hosts, machine)
	slices.Sort(hosts)
	var all []client.Object
	for i, host := range slices.Compact(hosts) {
		for _, scheme := range []string{"http", "https"} {
			name := fmt.Sprint(scheme, "-", i)
			create(t, &corev1.Secret{ObjectMeta: tn.meta(name), StringData: map[string]string{"address": scheme + "://" + host + ":" + port, "username": "u", "password": "p"}})
			o := tn.repository(name, target+"/app")
			o.Spec.ProxySecretRef = &meta.LocalReference{Name: name}
			all = append(all, o)
		}
	}
	tn.refused(t, all, []string{target})
}

// stay acts as a tenant that adds its own finalizer to an object and deletes the object. The object
// then remains, even after the controller has removed Lanyard's finalizer.
func stay(tn *tenant) {
	t := tn.t
	const foreign = "hostile.example.com/stay"
	host := tn.host("stay")
	var asked atomic.Int64
	layer := archive(t, 1<<10, zeros{})
	registry := &registry{
		// Each request gets another manifest, so each reconciliation finds a new artifact.
		manifest: func() []byte { return manifestOf(t, layer, fmt.Sprint(asked.Load())) },
		blob:     func(w http.ResponseWriter) { _, _ = w.Write(layer) },
	}
	tn.serve(t, host, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		registry.ServeHTTP(w, r)
	})
	o := tn.repository("stay", host+"/app")
	o.Finalizers = []string{foreign}
	create(t, o)
	t.Cleanup(func() { // Clean up even if the test fails: nobody else removes this finalizer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		must(t, "take the finalizer back", objects.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	})
	await(t, o, "an artifact", func() error { return wantf(artifact(o) != nil, "%+v", condition(o)) })
	address := artifact(o).URL
	tn.tried++
	must(t, "delete an object", objects.Delete(t.Context(), o))
	await(t, o, "only the finalizer of its own", func() error {
		return wantf(slices.Equal(o.Finalizers, []string{foreign}), "finalizers %v", o.Finalizers)
	})
	if status := get(t, http.MethodGet, address); status == http.StatusOK {
		t.Errorf("%s is served after the object's deletion", address)
	}
	before := asked.Load()
	// The controller must ignore the following requests, because the object is being deleted. When
	// the controller has reconciled the new object "probe", it has seen all these requests.
	for i := range 5 {
		tn.tried++
		must(t, "ask for a reconciliation", request(t.Context(), objects, o, fmt.Sprint("again-", i)))
	}
	probe := tn.repository("probe", tn.host("nowhere")+"/app")
	tn.refused(t, []client.Object{probe}, nil)
	// Allow one request: it may have been in flight when the variable before was set. A
	// reconciliation would make three requests. Two are for the manifest, and the third is for the
	// layer, which the controller fetches for each new manifest.
	if now := asked.Load(); now > before+1 {
		t.Errorf("the registry was asked %d times for an object that is deleted", now-before)
	}
}

// remake creates an object repeatedly under the name of a deleted one. Each object has a new UID,
// and must inherit nothing from the former object.
func remake(tn *tenant) {
	t := tn.t
	host := tn.host("remake")
	layer := archive(t, 1<<10, zeros{})
	content := &registry{manifest: func() []byte { return manifestOf(t, layer, "") }, blob: func(w http.ResponseWriter) { _, _ = w.Write(layer) }}
	tn.serve(t, host, content.ServeHTTP)
	tn.serve(t, tn.host("empty"), http.NotFound)
	for round := range 3 {
		o := tn.repository("again", host+"/app")
		create(t, o)
		await(t, o, "an artifact", func() error { return wantf(artifact(o) != nil, "%+v", condition(o)) })
		address, former := artifact(o).URL, o.UID
		must(t, "delete an object", objects.Delete(t.Context(), o))
		awaitGone(t, o, patience)
		next := tn.repository("again", tn.host("empty")+"/app")
		tn.refused(t, []client.Object{next}, nil)
		if next.UID == former || artifact(next) != nil {
			t.Errorf("round %d: the object made again has artifact %v", round, artifact(next))
		}
		tn.tried++
		if status := get(t, http.MethodGet, address); status == http.StatusOK {
			t.Errorf("%s is served after its object was replaced", address)
		}
		must(t, "delete an object", objects.Delete(t.Context(), next))
		awaitGone(t, next, patience)
	}
}
