package cloudtest_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

func TestConfigRoundTrip(t *testing.T) {
	want := rig.AWSConfig()
	data, err := json.Marshal(want)
	must.Succeed(t, err)
	got, err := cloudtest.ParseConfig(data)
	must.Succeed(t, err)
	again, err := json.Marshal(got)
	must.Succeed(t, err)
	if diff := cmp.Diff(string(data), string(again)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c, err := cloudtest.New(got)
	must.Succeed(t, err)
	_ = c.Close()
}

func TestParseConfigRefuses(t *testing.T) {
	for doc, want := range map[string]string{
		``:                                 "not JSON",
		`{"aws":{}}{}`:                     "after the end",
		`{"aws":{"acounts":[]}}`:           `unknown field "acounts"`,
		`{"aws":{"accounts":[]},"aws":{}}`: "aws stands there twice",
		`{"faults":[{"kind":"drop","count":1}],"faults":[]}`: "faults stands there twice",
		`{"faults":[{"kind":"drop","until":1}]}`:             `unknown field "until"`,
		`{"faults":[{"kind":"latency","delay":"soon"}]}`:     "delay: give a duration",
		`{"journalSize":"big"}`:                              "journalSize",
	} {
		if _, err := cloudtest.ParseConfig([]byte(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", doc, err, want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(*aws.Account)
		field string
	}{
		{"account ID", func(a *aws.Account) { a.ID = "123" }, "aws.accounts[0].id"},
		{"account twice", func(a *aws.Account) { a.ID = otherAccount }, "aws.accounts[1].id"},
		{"partition", func(a *aws.Account) { a.Partition = "aws-mars" }, "aws.accounts[0].partition"},
		{"issuer with a port", func(a *aws.Account) { a.OIDCProviders[0].URL = "https://issuer.example:8443" }, "aws.accounts[0].oidcProviders[0].url"},
		{"issuer with http", func(a *aws.Account) { a.OIDCProviders[0].URL = "http://issuer.example" }, "aws.accounts[0].oidcProviders[0].url"},
		{"no audience", func(a *aws.Account) { a.OIDCProviders[0].ClientIDs = nil }, "aws.accounts[0].oidcProviders[0].clientIDs"},
		{"issuer twice", func(a *aws.Account) { a.OIDCProviders = append(a.OIDCProviders, a.OIDCProviders[0]) }, "aws.accounts[0].oidcProviders[1]"},
		{"role name", func(a *aws.Account) { a.Roles[1].Name = "a/b" }, "aws.accounts[0].roles[1].name"},
		{"role twice", func(a *aws.Account) { a.Roles[1].Name = a.Roles[0].Name }, "aws.accounts[0].roles[1]"},
		{"role path", func(a *aws.Account) { a.Roles[0].Path = "team" }, "aws.accounts[0].roles[0].path"},
		{"session too long", func(a *aws.Account) { a.Roles[0].MaxSessionDuration = 43201 }, "aws.accounts[0].roles[0].maxSessionDuration"},
		{"trust policy", func(a *aws.Account) { a.Roles[0].TrustPolicy = []byte(`{}`) }, "aws.accounts[0].roles[0].trustPolicy"},
		{"no trust policy", func(a *aws.Account) { a.Roles[0].TrustPolicy = nil }, "aws.accounts[0].roles[0].trustPolicy"},
		{"permission policy", func(a *aws.Account) { a.Roles[0].Policies["x"] = []byte(`{}`) }, `aws.accounts[0].roles[0].policies["x"]`},
		{"managed policy", func(a *aws.Account) {
			a.Roles[0].ManagedPolicies = []string{"arn:aws:iam::aws:policy/AdministratorAccess"}
		}, "aws.accounts[0].roles[0].managedPolicies[0]"},
		{"key ID", func(a *aws.Account) { a.Users[0].AccessKeys[0].ID = "pusher" }, "aws.accounts[0].users[0].accessKeys[0].id"},
		{"secret", func(a *aws.Account) { a.Users[0].AccessKeys[0].Secret = "short" }, "aws.accounts[0].users[0].accessKeys[0].secret"},
		{"key of another user", func(a *aws.Account) { a.Users = append(a.Users, a.Users[0]); a.Users[1].Name = "other" }, "aws.accounts[0].users[1].accessKeys[0].id"},
		{"region", func(a *aws.Account) { a.Repositories[0].Region = "eu-west-9" }, "aws.accounts[0].repositories[0].region"},
		{"repository", func(a *aws.Account) { a.Repositories[0].Name = "Tenant/../x" }, "aws.accounts[0].repositories[0].name"},
		{"repository twice", func(a *aws.Account) { a.Repositories[1] = a.Repositories[0] }, "aws.accounts[0].repositories[1]"},
		{"repository policy", func(a *aws.Account) { a.Repositories[0].Policy = []byte(`[]`) }, "aws.accounts[0].repositories[0].policy"},
		{"alias", func(a *aws.Account) { a.PublicRegistry.Alias = "a/b" }, "aws.accounts[0].publicRegistry.alias"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := rig.AWSConfig()
			tt.spoil(&cfg.AWS.Accounts[0])
			_, err := cloudtest.New(cfg)
			var refusal *setting.Error
			if !errors.As(err, &refusal) {
				t.Fatalf("got %v, want a *setting.Error", err)
			}
			if refusal.Field != tt.field {
				t.Errorf("field %q, want %q: %v", refusal.Field, tt.field, err)
			}
			if strings.Contains(err.Error(), rig.PusherSecret) {
				t.Error("the error has a secret")
			}
		})
	}
}

// FuzzParseConfig: a parsed configuration can be written and parsed again without a change.
func FuzzParseConfig(f *testing.F) {
	world, err := json.Marshal(rig.AWSConfig())
	must.Succeed(f, err)
	f.Add(world)
	f.Add([]byte(`{"faults":[{"kind":"latency","delay":"1s"}],"quotas":[{"service":"sts","perSecond":1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := cloudtest.ParseConfig(data)
		if err != nil {
			return
		}
		first, err := json.Marshal(cfg)
		must.Succeed(t, err)
		again, err := cloudtest.ParseConfig(first)
		if err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		second, err := json.Marshal(again)
		if err != nil || string(first) != string(second) {
			t.Errorf("%s became %s, %v", first, second, err)
		}
	})
}
