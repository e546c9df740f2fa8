package alibaba

import "testing"

// TestTrust checks which trust policies allow a token.
func TestTrust(t *testing.T) {
	const provider = "acs:ram::1234567890123456:oidc-provider/a"
	statement := func(effect, condition string) string {
		return `{"Effect":"` + effect + `","Action":"sts:AssumeRole","Principal":{"Federated":"` + provider + `"},"Condition":` + condition + `}`
	}
	for name, tt := range map[string]struct {
		statements string
		want       bool
	}{
		"no condition":       {statement("Allow", `{}`), true},
		"equal":              {statement("Allow", `{"StringEquals":{"oidc:sub":["x","a:b"]}}`), true},
		"another subject":    {statement("Allow", `{"StringEquals":{"oidc:sub":"a:c"}}`), false},
		"a star is a letter": {statement("Allow", `{"StringEquals":{"oidc:sub":"a:*"}}`), false},
		"like":               {statement("Allow", `{"StringLike":{"oidc:sub":"a:?"}}`), true},
		"like a part":        {statement("Allow", `{"StringLike":{"oidc:sub":":b"}}`), false},
		"like a pattern":     {statement("Allow", `{"StringLike":{"oidc:sub":"a.b"}}`), false},
		"both":               {statement("Allow", `{"StringEquals":{"oidc:sub":"a:b","oidc:aud":"other"}}`), false},
		"denied":             {statement("Allow", `{}`) + "," + statement("Deny", `{"StringLike":{"oidc:sub":"a:*"}}`), false},
		"denied to another":  {statement("Allow", `{}`) + "," + statement("Deny", `{"StringLike":{"oidc:sub":"b:*"}}`), true},
	} {
		policy, err := parseTrust([]byte(`{"Version":"1","Statement":[` + tt.statements + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		claims := map[string][]string{"oidc:sub": {"a:b"}, "oidc:aud": {"one", "two"}, "oidc:iss": {"i"}}
		if got := policy.allows(provider, claims); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
		if policy.allows(provider+"b", claims) {
			t.Errorf("%s: another provider is let in", name)
		}
	}
}
