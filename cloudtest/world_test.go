package cloudtest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

const (
	account      = "123456789123"
	otherAccount = "210987654321"
	region       = "eu-west-1"
	issuerURL    = "https://oidc.eks.eu-west-1.amazonaws.com/id/LANYARD0000000000000000000000DE"
	audience     = "sts.amazonaws.com"
	registryHost = account + ".dkr.ecr." + region + ".amazonaws.com"

	subjectA = "system:serviceaccount:tenant-a:tenant-a-ecr-sa"
	subjectB = "system:serviceaccount:tenant-b:tenant-b-ecr-sa"
	roleA    = "arn:aws:iam::" + account + ":role/tenant-a-ecr"
	roleB    = "arn:aws:iam::" + account + ":role/tenant-b-ecr"

	pusherKey    = "AKIAPUSHERPUSHERPUSH"
	pusherSecret = "pusher-secret-pusher-secret"
)

// world is a cloud with two tenants, as the demo has it.
type world struct {
	*cloudtest.Cloud

	issuer *oidc.Issuer // that the account knows
	rogue  *oidc.Issuer // that it does not
}

func trustPolicy(subject string) json.RawMessage {
	host := strings.TrimPrefix(issuerURL, "https://")
	return fmt.Appendf(nil, `{"Version":"2012-10-17","Statement":[{
		"Effect":"Allow",
		"Principal":{"Federated":"arn:aws:iam::%s:oidc-provider/%s"},
		"Action":"sts:AssumeRoleWithWebIdentity",
		"Condition":{"StringEquals":{"%s:sub":%q,"%s:aud":%q}}}]}`, account, host, host, subject, host, audience)
}

func pullPolicy(repository string) json.RawMessage {
	return fmt.Appendf(nil, `{"Version":"2012-10-17","Statement":[
		{"Effect":"Allow","Action":"ecr:GetAuthorizationToken","Resource":"*"},
		{"Effect":"Allow","Action":["ecr:BatchGetImage","ecr:GetDownloadUrlForLayer","ecr:BatchCheckLayerAvailability","ecr:ListImages"],
		 "Resource":"arn:aws:ecr:%s:%s:repository/%s"}]}`, region, account, repository)
}

func tenantRole(tenant, subject string) aws.Role {
	return aws.Role{
		Name: tenant + "-ecr", TrustPolicy: trustPolicy(subject),
		Policies: map[string]json.RawMessage{"pull": pullPolicy(tenant + "/*")},
	}
}

func worldConfig() cloudtest.Config {
	const everything = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`
	return cloudtest.Config{AWS: aws.Config{Accounts: []aws.Account{
		{
			ID:            account,
			OIDCProviders: []aws.OIDCProvider{{URL: issuerURL, ClientIDs: []string{audience}}},
			Roles:         []aws.Role{tenantRole("tenant-a", subjectA), tenantRole("tenant-b", subjectB)},
			Users: []aws.User{{
				Name: "pusher", AccessKeys: []aws.AccessKey{{ID: pusherKey, Secret: pusherSecret}},
				Policies: map[string]json.RawMessage{"all": json.RawMessage(everything)},
			}},
			Repositories: []aws.Repository{{Region: region, Name: "tenant-a/app"}, {Region: region, Name: "tenant-b/app"}},
			PublicRegistry: &aws.PublicRegistry{
				Alias: "lanyard", Repositories: []string{"tools"},
			},
		},
		{ID: otherAccount, Repositories: []aws.Repository{{Region: region, Name: "tenant-a/app"}}},
	}}}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c, err := cloudtest.New(worldConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	w := &world{Cloud: c}
	for _, i := range []struct {
		url       string
		algorithm oidc.Algorithm
		to        **oidc.Issuer
	}{{issuerURL, oidc.RS256, &w.issuer}, {"https://issuer.tenant-b.example", oidc.ES256, &w.rogue}} {
		issuer, err := oidc.NewIssuer(i.url, i.algorithm)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.HandleIssuer(issuer); err != nil {
			t.Fatal(err)
		}
		*i.to = issuer
	}
	var mu sync.Mutex
	planes := map[aws.Registry]http.Handler{}
	c.AWS().ServeRegistry(func(r aws.Registry) http.Handler {
		mu.Lock()
		defer mu.Unlock()
		if planes[r] == nil {
			planes[r] = newPlane()
		}
		return planes[r]
	})
	c.AWS().ServePublicRegistry(newPlane())
	return w
}

func (w *world) mint(t *testing.T, subject string) string {
	t.Helper()
	raw, err := w.issuer.Mint(oidc.Claims{"sub": subject, "aud": []string{audience}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func (w *world) client() *http.Client {
	return &http.Client{Transport: w.Transport(), Timeout: 30 * time.Second}
}

// plane is a registry in memory: blobs and manifests by path, uploads in one piece. It fails on a request that still carries credentials.
type plane struct {
	mu      sync.Mutex
	content map[string][]byte
}

func newPlane() *plane { return &plane{content: map[string][]byte{}} }

func (p *plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		http.Error(w, "a data plane got credentials", http.StatusTeapot)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	repository, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/blobs/")
	switch {
	case r.Method == http.MethodPost:
		if r.URL.Query().Has("mount") {
			http.Error(w, "a data plane was asked to mount", http.StatusTeapot)
			return
		}
		w.Header().Set("Location", r.Header.Get("X-Forwarded-Proto")+"://"+r.Host+r.URL.Path+"upload-1")
		w.WriteHeader(http.StatusAccepted)
	case r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/blobs/uploads/"):
		sum := sha256.Sum256(body)
		p.content["/v2/"+repository+"/blobs/sha256:"+hex.EncodeToString(sum[:])] = body
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodPut:
		p.content[r.URL.Path] = body
		w.WriteHeader(http.StatusCreated)
	default:
		content, ok := p.content[r.URL.Path]
		if !ok {
			http.Error(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"unknown"}]}`, http.StatusNotFound)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}
