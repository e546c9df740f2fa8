package attack

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// borrowIdentities repeats what tenant-b of the demonstration does: its objects refer to tenant-a's
// cloud identities, ServiceAccounts and contents.
func borrowIdentities(tn *tenant) {
	t := tn.t
	const again = "what is refused must stay refused"
	all, err := report.List(t.Context(), objects, kinds.All(), "tenant-b")
	must(t, "list the objects of tenant-b", err)
	for _, o := range all {
		must(t, "ask for a reconciliation", request(t.Context(), objects, o.Resource, again))
	}
	for _, o := range all {
		await(t, o.Resource, "the reconciliation", func() error {
			return wantf(o.GetStatus().LastHandledReconcileAt == again, "it is not handled")
		})
		row := report.Of(report.Read(kinds.All(), o.Resource))
		if row.Expected == "" {
			continue
		}
		tn.tried++
		if !row.OK() {
			t.Errorf("%s/%s: want %s, it is %s %s: %s", row.Namespace, row.Name, row.Expected, row.Result, row.Reason, row.Message)
		}
	}
}

// nameLookalikes acts as a tenant that wants tokens for hosts that look like a cloud's hosts.
func nameLookalikes(tn *tenant) {
	t := tn.t
	const ecr = local.Account + ".dkr.ecr." + local.Region + ".amazonaws.com"
	registries := map[string][]string{
		v1alpha1.ProviderAWS: {
			ecr + ".evil.example", "evil." + ecr, local.Account + ".dkr-ecr." + local.Region + ".amazonaws.com",
			local.Account + ".dkr.ecr." + local.Region + ".amazonaws.evil.example", ecr + ":8443", "x" + ecr, "public.ecr.aws.evil.example",
			local.Account + ".dkr.ecr." + local.Region + ".amazonaws.com.cn", "dkr.ecr." + local.Region + ".amazonaws.com", ecr + ".",
		},
		v1alpha1.ProviderAzure: {
			"lanyarddemo.azurecr.io.evil.example", "lanyarddemo-azurecr.io", "azurecr.io", "lanyarddemo.azurecr.cn", "a.b.azurecr.io", "lanyarddemo.azurecr.io:8443",
		},
		v1alpha1.ProviderGCP: {
			"europe-docker.pkg.dev.evil.example", "evil-gcr.io", "a.gcr.io", "docker.pkg.dev.evil.example", "gcr.io.evil.example", "gcr.io:8443",
		},
	}
	var all []client.Object
	var hosts []string
	for provider, urls := range registries {
		for i, url := range urls {
			all = append(all, tn.repositoryAs(fmt.Sprint(provider, "-", i), provider, url+"/tenant-b/app"))
			hosts = append(hosts, url)
		}
	}
	for i, endpoint := range []string{
		"sts.amazonaws.com.evil.example", "sts-evil.amazonaws.com", "sts.evil.amazonaws.com", "sts." + local.Region + ".amazonaws.com:8443",
		listedSTS + ":8443", "sts." + local.Region + ".vpce.amazonaws.com", "evil.example",
	} {
		o := tn.bucket(fmt.Sprint("sts-", i), tn.host("bucket"))
		o.Spec.ServiceAccountName = puller
		o.Spec.STS = &v1alpha1.BucketSTS{Provider: v1alpha1.ProviderAWS, Endpoint: "https://" + endpoint}
		all, hosts = append(all, o), append(hosts, endpoint)
	}
	for i, endpoint := range []string{
		"s3." + local.Region + ".amazonaws.com.evil.example", "s3-evil.amazonaws.com", "s3." + local.Region + ".amazonaws.com:8443", "evil.example",
	} {
		o := tn.bucket(fmt.Sprint("s3-", i), endpoint)
		o.Spec.Provider, o.Spec.ServiceAccountName = v1alpha1.ProviderAWS, puller
		all, hosts = append(all, o), append(hosts, endpoint)
	}
	tn.refused(t, all, hosts)
}

// flipRole acts as tenant-b. While its objects are fetched, it keeps switching a ServiceAccount's
// role annotation between tenant-b's role and tenant-a's. No object may report tenant-a's role, at
// whatever time the controller read the annotation.
func flipRole(tn *tenant) {
	t := tn.t
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-b", Name: "tenant-b-ecr-sa"}}
	annotate := func(role string) {
		data := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, roleAnnotation, role)
		must(t, "annotate the account", objects.Patch(t.Context(), account, client.RawPatch(types.MergePatchType, data)))
	}
	var flipping []*v1alpha1.OCIRepository
	for i := range 10 {
		o := tn.repositoryAs(fmt.Sprint("flipping-", i), v1alpha1.ProviderAWS, local.Account+".dkr.ecr."+local.Region+".amazonaws.com/tenant-b/app")
		o.Namespace, o.Spec.ServiceAccountName = account.Namespace, account.Name
		create(t, o)
		flipping = append(flipping, o)
	}
	for end := time.Now().Add(lasting(5*time.Second, 40*time.Second)); time.Now().Before(end); {
		for _, role := range []string{roleA, roleB} {
			annotate(role)
			tn.tried++
			pause(t, 20*time.Millisecond)
		}
	}
	for _, o := range flipping {
		await(t, o, "its own role again", func() error {
			id := o.Status.Identity
			return wantf(condition(o).Status == metav1.ConditionTrue && id != nil && id.CloudIdentity == roleB, "as %+v: %+v", id, condition(o))
		})
		must(t, "remove "+o.Name, objects.Delete(t.Context(), o))
	}
	for line := range bytes.Lines(readLog(t)) {
		// Only a line about a refusal is allowed to contain tenant-a's role.
		refusal := bytes.Contains(line, []byte("fail")) || bytes.Contains(line, []byte(`"type":"Warning"`))
		if bytes.Contains(line, []byte("flipping-")) && bytes.Contains(line, []byte(roleA)) && !refusal {
			t.Errorf("the log names tenant-a's role: %s", line)
		}
	}
	// The controller handled tokens while the annotation changed. Its log must not contain them.
	if err := wantNoSecretsInLogs(); err != nil {
		t.Error(err)
	}
}

// replayProofs acts as a tenant that controls the token service at the host listedSTS. The service
// receives ServiceAccount tokens, and the tenant presents them to the clouds.
func replayProofs(tn *tenant) {
	t := tn.t
	stolen := make(chan string, 100)
	must(t, "serve the token service", world.Cloud().Handle(listedSTS, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case stolen <- r.PostFormValue("WebIdentityToken"):
		default:
		}
		w.WriteHeader(http.StatusForbidden)
	})))
	t.Cleanup(func() { _ = world.Cloud().Handle(listedSTS, nil) })
	o := tn.bucket("victim", tn.host("bucket"))
	o.Namespace, o.Spec.ServiceAccountName = "tenant-b", "tenant-b-ecr-sa"
	o.Spec.STS = &v1alpha1.BucketSTS{Provider: v1alpha1.ProviderAWS, Endpoint: "https://" + listedSTS}
	create(t, o)
	defer func() { must(t, "remove "+o.Name, objects.Delete(t.Context(), o)) }()
	var proof string
	select {
	case proof = <-stolen:
	case <-time.After(patience):
		t.Fatal("the listed service received no proof: this tests nothing")
	}
	aws := func(role string) url.Values {
		return url.Values{
			"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "RoleArn": {role}, "RoleSessionName": {"stolen"}, "WebIdentityToken": {proof},
		}
	}
	entra := func(application string) url.Values {
		return url.Values{
			"grant_type": {"client_credentials"}, "client_id": {application}, "scope": {"https://containerregistry.azure.net/.default"},
			"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}, "client_assertion": {proof},
		}
	}
	for _, replay := range []struct {
		url  string
		form url.Values
	}{
		{"https://sts." + local.Region + ".amazonaws.com/", aws(roleB)},
		{"https://sts." + local.Region + ".amazonaws.com/", aws(roleA)},
		{"https://sts.amazonaws.com/", aws(roleB)},
		{"https://login.microsoftonline.com/" + local.AzureTenant + "/oauth2/v2.0/token", entra(applicationB)},
		{"https://login.microsoftonline.com/" + local.AzureTenant + "/oauth2/v2.0/token", entra(applicationA)},
		{"https://sts.googleapis.com/v1/token", url.Values{
			"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "scope": {"https://www.googleapis.com/auth/cloud-platform"},
			"audience":             {"identitynamespace:my-org-project.svc.id.goog:https://container.googleapis.com/v1/projects/my-org-project/locations/europe-west1/clusters/lanyard"},
			"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"}, "subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"}, "subject_token": {proof},
		}},
	} {
		tn.tried++
		if status := post(t, replay.url, replay.form); status == http.StatusOK {
			t.Errorf("%s accepts a proof for %s: %v", replay.url, listedSTS, replay.form)
		}
	}
}

func post(t *testing.T, address string, form url.Values) (status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(form.Encode()))
	must(t, "make a request", err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := (&http.Client{Transport: world.Cloud().Transport()}).Do(req)
	must(t, "call "+address, err)
	must(t, "call "+address, res.Body.Close())
	return res.StatusCode
}

// forgeStatus acts as a person with the chart's role for tenants. The person must not be able to
//
//   - write a status, which only the controller may do;
//   - read or change an object of tenant-a;
//   - read a Secret;
//   - create a RoleBinding in tenant-a; or
//   - create a ServiceAccount token.
func forgeStatus(tn *tenant) {
	t := tn.t
	const person = "mallory"
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: tn.meta(person), Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: person}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lanyard-edit"},
	})
	config := world.Config()
	config.Impersonate.UserName = person
	mallory, err := client.New(config, client.Options{Scheme: objects.Scheme()})
	must(t, "become "+person, err)
	forged := []byte(`{"status":{"artifact":{"url":"http://evil.example/x","path":"x","revision":"v9","digest":"sha256:` + strings.Repeat("0", 64) + `","lastUpdateTime":"2026-01-01T00:00:00Z"}}}`)

	own := tn.repository("own", tn.host("nowhere")+"/app")
	own.Status.ObservedGeneration = 7
	own.Status.Artifact = &v1alpha1.Artifact{URL: "http://evil.example/x", Revision: "v9", Digest: "sha256:" + strings.Repeat("0", 64)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	poll(ctx, t, "the role is in force", func() error { return client.IgnoreAlreadyExists(mallory.Create(ctx, own)) })
	tn.tried++
	must(t, "write the status beside the spec", mallory.Patch(ctx, own, client.RawPatch(types.MergePatchType, forged)))
	tn.tried++
	must(t, "read it", objects.Get(ctx, client.ObjectKeyFromObject(own), own))
	if own.Status.Artifact != nil {
		t.Errorf("a tenant has written the status: %+v", own.Status.Artifact)
	}

	honest := &v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Namespace: honestNamespace, Name: "tenant-a-repo"}}
	foreign := tn.repositoryAs("foreign", v1alpha1.ProviderAWS, local.Account+".dkr.ecr."+local.Region+".amazonaws.com/tenant-a/app")
	foreign.Namespace, foreign.Spec.ServiceAccountName = honestNamespace, "tenant-a-ecr-sa"
	raw := client.RawPatch(types.MergePatchType, forged)
	for what, err := range map[string]error{
		"its own object's status":        mallory.Status().Patch(ctx, own.DeepCopy(), raw),
		"tenant-a's status":              mallory.Status().Patch(ctx, honest.DeepCopy(), raw),
		"tenant-a's object":              mallory.Patch(ctx, honest.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`))),
		"an object of tenant-a":          mallory.Create(ctx, foreign),
		"tenant-a's object, to read":     mallory.Get(ctx, client.ObjectKeyFromObject(honest), honest.DeepCopy()),
		"tenant-a's object, to delete":   mallory.Delete(ctx, honest.DeepCopy()),
		"a Secret beside the controller": mallory.Get(ctx, client.ObjectKey{Namespace: local.Namespace, Name: "lanyard-controller"}, &corev1.Secret{}),
		"its own namespace's Secrets":    mallory.List(ctx, &corev1.SecretList{}, client.InNamespace(tn.namespace)),
		"a role for itself in tenant-a":  mallory.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: honestNamespace, Name: person}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lanyard-edit"}}),
		"an account of its own to prove": mallory.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: tn.meta(puller)}, &corev1.ServiceAccount{}),
	} {
		tn.tried++
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it forbidden", what, err)
		}
	}
}

// guessArtifacts guesses the URLs of tenant-a's artifacts from public facts about them. The
// artifact server must serve none of the guessed URLs.
func guessArtifacts(tn *tenant) {
	t := tn.t
	honest := &v1alpha1.OCIRepository{}
	must(t, "read tenant-a's object", objects.Get(t.Context(), client.ObjectKey{Namespace: honestNamespace, Name: "tenant-a-repo"}, honest))
	address := honest.Status.Artifact.URL
	base, path, _ := strings.Cut(address, "/ocirepository/")
	parts := strings.Split(path, "/") // the parts are namespace, name, capability and file
	if status := get(t, http.MethodGet, address); status != http.StatusOK || len(parts) != 4 {
		t.Fatalf("%d parts, HTTP %d: these are not URLs of artifacts", len(parts), status)
	}
	at := func(elements ...string) string { return base + "/ocirepository/" + strings.Join(elements, "/") }
	for _, guess := range []string{
		at(parts[0], parts[1], parts[3]), at(parts[0], parts[1], strings.Repeat("0", len(parts[2])), parts[3]), at(parts[0], parts[1], "", parts[3]),
		at(parts[0], parts[1], parts[2][:len(parts[2])-1]+"g", parts[3]), at(parts[0], parts[1], strings.ToUpper(parts[2]), parts[3]),
		at(parts[0], parts[1], parts[2]), at(parts[0], parts[1], parts[2], ""), at(parts[0], parts[1]), at(parts[0]), base + "/", at("..", "..", "etc", "passwd"),
		at(tn.namespace, parts[1], parts[2], parts[3]), at(parts[0], "other", parts[2], parts[3]), address + "?", address + "?x=1", address + "/", address + "/..",
		at(parts[0], parts[1], parts[2], ".."), at(parts[0], "..", parts[0], parts[1], parts[2], parts[3]), at(parts[0], parts[1], "%2e%2e", parts[3]),
		strings.Replace(address, "/ocirepository/", "/bucket/", 1), strings.Replace(address, "/ocirepository/", "/%6fcirepository/", 1),
		base + "/" + honest.Status.Artifact.Path, base + "/" + honest.Status.Artifact.Digest, base + "/key",
	} {
		tn.tried++
		if status := get(t, http.MethodGet, guess); status == http.StatusOK {
			t.Errorf("%s is served", guess)
		}
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPost} {
		tn.tried++
		if status := get(t, method, address); status == http.StatusOK {
			t.Errorf("%s is answered", method)
		}
	}
}

// get sends a request to the artifact server, without following redirects.
func get(t *testing.T, method, address string) (status int) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{}, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, address, http.NoBody)
	must(t, "make a request", err)
	res, err := c.Do(req)
	must(t, "ask for an artifact", err)
	must(t, "ask for an artifact", res.Body.Close())
	return res.StatusCode
}
