package aws

import (
	"fmt"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// explainStore sets f.Code and f.Fix according to f.api, the error code in the answer of an
// S3-compatible store, such as MinIO or Ceph. The endpoint is the store's security token service;
// its host is in [Config].AllowedEndpointHosts. A store has no accounts, and fewer error codes than
// AWS: MinIO answers InvalidParameterValue to every invalid token. Sources: MinIO,
// docs/sts/web-identity.md; Ceph Object Gateway, "STS in Ceph".
func (x plan) explainStore(f *failure, claims remote.Claims, request *auth.Request) {
	trust := fmt.Sprintf("have %s trust the issuer %s with the audience (client ID) %s", x.where(), claims.Issuer, x.sts.Audience())
	if x.role == (role{}) {
		trust += fmt.Sprintf(" and map the claims of %s to a policy, or name a role in %s",
			claims.Subject, roleAttribute().At(request.Key.Subject))
	} else {
		trust += fmt.Sprintf(" for role %s and subject %s", x.role, claims.Subject)
	}

	switch f.api {
	case "AccessDenied", "AccessDeniedException", "InvalidParameterValue", "InvalidIdentityToken", "IDPRejectedClaim":
		f.Code, f.Fix = auth.CodeTrustRefused, trust
	case "MissingParameter", "InvalidArgument", "ValidationError":
		f.Code = auth.CodeRefused
		f.Fix = fmt.Sprintf("name a role of the store in %s", roleAttribute().At(request.Key.Subject))
	case "ExpiredToken", "ExpiredTokenException": // MinIO's text: "expired or is not valid"
		f.Code = auth.CodeProofInvalid
		f.message = "" // a time of day in the message would make each error different
		f.Fix = "compare the clock of the API server with that of " + x.where()
	}
	if f.Code == auth.CodeUnavailable {
		f.Fix = "wait, and see the log of " + x.where() + " if the failure persists"
	}
}
