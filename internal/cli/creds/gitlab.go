package creds

import (
	"cmp"
	"context"
	"fmt"
)

// gitLabToken reads the token that GitLab gives to a job in an environment variable. The keyword
// id_tokens in the job's definition sets the variable's name and the token's audience. Source:
// GitLab, "OpenID Connect (OIDC) Authentication Using ID Tokens".
func (f *Flags) gitLabToken(context.Context, Receiver) (Credential, error) {
	name := cmp.Or(f.TokenEnv, DefaultTokenEnv)
	token := f.env(name)
	if token == "" {
		return Credential{}, fmt.Errorf("%s is empty; give the job an id_tokens entry %s with aud, the registry's audience, "+
			"or name another variable with --%s", name, name, flagTokenEnv)
	}
	return f.readJWT(token, "the token in the variable "+name)
}
