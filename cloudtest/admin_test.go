package cloudtest_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// TestAdmin changes a cloud only through its admin API, and asks STS whether the change is in
// force.
func TestAdmin(t *testing.T) {
	ctx := t.Context()
	w := rig.NewWorld(t)
	transport := rig.Proxied(t, w.Cloud)
	admin := &cloudtest.Admin{URL: w.ProxyURL()}
	const third = "333333333333"
	issuer, err := oidc.NewIssuer("https://issuer.third.example/a", oidc.ES256)
	must.Succeed(t, err)
	token, err := issuer.Mint(oidc.Claims{"sub": "job", "aud": audience})
	must.Succeed(t, err)
	role := aws.Role{Name: "job", TrustPolicy: []byte(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRoleWithWebIdentity",
		"Principal":{"Federated":"arn:aws:iam::` + third + `:oidc-provider/issuer.third.example/a"},
		"Condition":{"StringEquals":{"issuer.third.example/a:sub":"job"}}}]}`)}
	const arn = "arn:aws:iam::" + third + ":role/job"

	var got []string
	step := func() { got = append(got, w.Assume(t, transport, arn, token)) }
	step() // STS refuses: the account does not exist
	must.Succeed(t, admin.AWS().AddAccount(ctx, aws.Account{ID: third}))
	must.Succeed(t, admin.AWS().PutOIDCProvider(ctx, third, aws.OIDCProvider{URL: issuer.URL(), ClientIDs: []string{audience}}))
	step() // STS refuses: the issuer cannot be reached
	must.Succeed(t, admin.PutIssuer(ctx, oidc.Static{URL: issuer.URL(), JWKS: issuer.JWKS()}))
	step() // STS refuses: the role does not exist
	must.Succeed(t, admin.AWS().PutRole(ctx, third, role))
	step() // STS gives credentials
	must.Succeed(t, admin.AWS().PutTrustPolicy(ctx, third, "job", []byte(strings.Replace(string(role.TrustPolicy), `:sub":"job"`, `:sub":"other"`, 1))))
	step() // STS refuses: the trust policy names another subject
	must.Succeed(t, admin.AWS().PutRole(ctx, third, role))
	id, err := admin.AddFault(ctx, fault.Fault{Service: "sts", Kind: fault.Throttle, Delay: time.Millisecond})
	must.Succeed(t, err)
	step() // STS throttles the request because of the fault
	faults, err := admin.Faults(ctx)
	must.Succeed(t, err)
	if diff := cmp.Diff([]fault.Fault{{ID: id, Service: "sts", Kind: fault.Throttle, Delay: time.Millisecond}}, faults); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	must.Succeed(t, admin.RemoveFault(ctx, id))
	must.Succeed(t, admin.SetQuotas(ctx, []fault.Quota{{Service: "sts", PerSecond: 0.001, Burst: 1}}))
	step() // STS gives credentials
	step() // STS throttles the request because of the quota
	must.Succeed(t, admin.SetQuotas(ctx, nil))
	must.Succeed(t, admin.ClearFaults(ctx))
	must.Succeed(t, admin.AWS().DeleteRole(ctx, third, "job"))
	step() // STS refuses: the role was deleted
	must.Succeed(t, admin.AWS().PutRole(ctx, third, role))
	must.Succeed(t, admin.AWS().DeleteOIDCProvider(ctx, third, issuer.URL()))
	step() // STS refuses: the account no longer has an OIDC provider
	want := []string{
		"InvalidIdentityToken", "IDPCommunicationError", "AccessDenied", "", "AccessDenied", "Throttling", "", "Throttling", "AccessDenied",
		"InvalidIdentityToken",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	must.Succeed(t, admin.AWS().PutUser(ctx, third, aws.User{Name: "u", AccessKeys: []aws.AccessKey{{ID: "AKIATHIRDTHIRDTHIRD1", Secret: "third-secret-third-secret"}}}))
	must.Succeed(t, admin.AWS().DeleteUser(ctx, third, "u"))
	must.Succeed(t, admin.AWS().PutRepository(ctx, third, aws.Repository{Region: region, Name: "a/b"}))
	must.Succeed(t, admin.AWS().DeleteRepository(ctx, third, region, "a/b"))
	must.Succeed(t, admin.AWS().PutBucket(ctx, third, aws.Bucket{Region: region, Name: "third-bucket"}))
	must.Succeed(t, admin.AWS().DeleteBucket(ctx, third, "third-bucket"))

	page, err := admin.Journal(ctx, journal.Filter{Service: "sts", Role: arn, Verdict: journal.Granted})
	must.Succeed(t, err)
	if len(page.Calls) != 2 || page.Calls[0].Subject != "job" || page.Dropped != 0 || page.Last != w.Journal().Last() {
		t.Errorf("journal page %+v", page)
	}
	if diff := cmp.Diff(w.Journal().Totals(), page.Totals); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	must.Succeed(t, admin.ResetJournal(ctx))
	if calls := w.Journal().Calls(journal.Filter{}); len(calls) != 0 {
		t.Errorf("after reset: %+v", calls)
	}
	pem, err := admin.CAPEM(ctx)
	must.Succeed(t, err)
	if string(pem) != string(w.CAPEM()) {
		t.Error("another CA")
	}
}

func TestAdminRefuses(t *testing.T) {
	ctx := t.Context()
	w := rig.NewWorld(t)
	_ = rig.Proxied(t, w.Cloud)
	admin := &cloudtest.Admin{URL: w.ProxyURL()}
	for name, tt := range map[string]struct {
		err    error
		status int
		says   string
	}{
		"unknown account":      {admin.AWS().PutRole(ctx, "999999999999", rig.TenantRole("x", "y")), 404, "account"},
		"unknown role":         {admin.AWS().DeleteRole(ctx, account, "nobody"), 404, `role "nobody"`},
		"unknown fault":        {admin.RemoveFault(ctx, "none"), 404, "fault"},
		"bad trust policy":     {admin.AWS().PutTrustPolicy(ctx, account, "tenant-a-ecr", []byte(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:*"}]}`)), 400, "trustPolicy: policy: Statement[0].Principal: is required"},
		"bad fault":            {second(admin.AddFault(ctx, fault.Fault{Kind: "earthquake"})), 400, "kind: give one of"},
		"bad quota":            {admin.SetQuotas(ctx, []fault.Quota{{Service: "sts"}}), 400, "quotas[0].perSecond"},
		"bad provider":         {admin.AWS().PutOIDCProvider(ctx, account, aws.OIDCProvider{URL: "https://issuer.example:8443", ClientIDs: []string{"a"}}), 400, "leave the port out"},
		"issuer on AWS's host": {admin.PutIssuer(ctx, oidc.Static{URL: "https://sts.amazonaws.com", JWKS: w.Issuer.JWKS()}), 400, "answers for it itself"},
		"issuer without keys":  {admin.PutIssuer(ctx, oidc.Static{URL: "https://issuer.example", JWKS: []byte(`{"keys":[]}`)}), 400, "at least one key"},
	} {
		var refusal *cloudtest.AdminError
		if !errors.As(tt.err, &refusal) || refusal.Status != tt.status || !strings.Contains(refusal.Message, tt.says) {
			t.Errorf("%s: %v, want HTTP %d with %q", name, tt.err, tt.status, tt.says)
		}
		if errors.Is(tt.err, setting.ErrNotFound) != (tt.status == http.StatusNotFound) {
			t.Errorf("%s: %v is wrong about what exists", name, tt.err)
		}
		// Each of these refusals, except a 404, wraps a setting.Error. The message of the refusal
		// contains the text of that error.
		if e, ok := errors.AsType[*setting.Error](tt.err); ok == (tt.status == http.StatusNotFound) || (ok && !strings.Contains(refusal.Message, e.Error())) {
			t.Errorf("%s: %v holds %v", name, tt.err, e)
		}
	}
	direct := &http.Transport{}
	defer direct.CloseIdleConnections()
	send := func(method, path, contentType, body string, change ...func(*http.Request)) int {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, method, w.ProxyURL()+path, strings.NewReader(body))
		must.Succeed(t, err)
		req.Header.Set("Content-Type", contentType)
		for _, c := range change {
			c(req)
		}
		res, err := direct.RoundTrip(req)
		must.Succeed(t, err)
		_ = res.Body.Close()
		return res.StatusCode
	}
	const valid = `{"kind":"drop"}`
	otherName := func(r *http.Request) { r.Host = "attacker.example" }
	for name, status := range map[string]int{
		"by another name":   send("POST", "/faults", "application/json", valid, otherName),
		"a form":            send("POST", "/faults", "application/x-www-form-urlencoded", valid),
		"plain text":        send("POST", "/faults", "text/plain", valid),
		"unknown field":     send("POST", "/faults", "application/json", `{"kind":"drop","kin":"x"}`),
		"field twice":       send("POST", "/faults", "application/json", `{"kind":"drop","kind":"drop"}`),
		"trailing":          send("POST", "/faults", "application/json", valid+"{}"),
		"unknown parameter": send("GET", "/journal?servce=sts", "", ""),
		"unknown path":      send("GET", "/", "", ""),
		"unknown method":    send("PATCH", "/faults", "application/json", valid),
	} {
		if status < 400 || status > 499 {
			t.Errorf("%s: HTTP %d", name, status)
		}
	}
	if faults := w.Faults().List(); len(faults) != 0 {
		t.Errorf("faults %+v", faults)
	}
}

func second[T any](_ T, err error) error { return err }
