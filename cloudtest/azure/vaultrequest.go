package azure

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// keyCall is a call to a key vault about one key.
type keyCall struct {
	*service.Request

	vault         *keyVault
	operation     string // empty if the local cloud does not have it
	name, version string // an empty version means the current version
	caller        string // as refusals name it
}

// keyOperation is an operation of a key vault.
type keyOperation struct {
	action string // needed data action, after actionKeys
	do     func(*Cloud, *keyCall) (any, *service.Refusal)
}

// keyOperations returns the operations by name. Source: Microsoft Learn, "Provide access to Key
// Vault keys, certificates and secrets with Azure role-based access control".
func keyOperations() map[string]keyOperation {
	return map[string]keyOperation{
		"CreateKey": {"create/action", (*Cloud).createKey},
		"GetKey":    {"read", (*Cloud).getKey},
		"UpdateKey": {"update/action", (*Cloud).updateKey},
		"DeleteKey": {"delete", (*Cloud).deleteKey},
		"Encrypt":   {"encrypt/action", (*Cloud).encrypt},
		"Decrypt":   {"decrypt/action", (*Cloud).decrypt},
	}
}

// keyAPIVersions returns the supported versions of the API. Source: Azure SDK for Go, package
// azkeys, its changelog.
func keyAPIVersions() []string { return []string{"7.4", "7.5", "7.6", "2025-07-01"} }

// readKeyCall reads a path /keys/<name>[/<version>][/<verb>]. Source: Azure REST API, "Keys".
func readKeyCall(r *service.Request, v *keyVault) *keyCall {
	call := &keyCall{Request: r, vault: v}
	path, ok := strings.CutPrefix(r.URL.Path, "/keys/")
	parts := strings.Split(path, "/")
	verb := ""
	if r.Method == http.MethodPost {
		verb, parts = parts[len(parts)-1], parts[:len(parts)-1]
	}
	if !ok || len(parts) == 0 || len(parts) > 2 || parts[0] == "" {
		return call
	}
	call.name, call.version = parts[0], strings.Join(parts[1:], "")
	switch r.Method + verb {
	case http.MethodPost + "encrypt":
		call.operation = "Encrypt"
	case http.MethodPost + "decrypt":
		call.operation = "Decrypt"
	case http.MethodGet:
		call.operation = "GetKey"
	case http.MethodPatch:
		call.operation = "UpdateKey"
	case http.MethodPost + "create":
		call.operation = "CreateKey"
	case http.MethodDelete:
		call.operation = "DeleteKey"
	}
	if call.version != "" && (call.operation == "CreateKey" || call.operation == "DeleteKey") {
		call.operation = "" // these are operations on a whole key
	}
	return call
}

// readVault implements [service.Service] for a key vault.
func (c *Cloud) readVault(r *service.Request, v *keyVault) (service.Protocol, service.Handler) {
	call := readKeyCall(r, v)
	r.Call.Operation, r.Call.Resource = call.operation, v.host+printable(r.URL.Path)
	if call.operation != "" {
		r.Call.Resource = printable(v.keyID(call.name))
	}
	_, location := c.vaultPlace(v)
	r.Reply.Set("Cache-Control", "no-cache")
	r.Reply.Set("X-Ms-Keyvault-Region", location)
	r.Reply.Set("X-Ms-Request-Id", wire.UUID())
	return vaultProtocol(v), func(*service.Request) (service.Answer, *service.Refusal) {
		if no := c.judgeKeyCall(call); no != nil {
			return nil, no
		}
		answer, no := keyOperations()[call.operation].do(c, call)
		if no != nil {
			return nil, no
		}
		return writeJSON(http.StatusOK, answer), nil
	}
}

// judgeKeyCall verifies the caller, reads the query, and checks the role assignments. Source for
// the message about versions: issue Azure/azure-sdk-for-python#28595.
func (c *Cloud) judgeKeyCall(call *keyCall) *service.Refusal {
	token, no := c.vaultCaller(call)
	if no != nil {
		return no
	}
	op, known := keyOperations()[call.operation]
	query, err := readValues(call.URL.RawQuery)
	switch {
	case !known:
		return service.Refuse(http.StatusMethodNotAllowed, "MethodNotAllowed",
			"The requested resource does not support http method '"+printable(call.Method)+"'.").
			Because("the local cloud does not have the operation")
	case err != nil || len(query) != 1 || !slices.Contains(keyAPIVersions(), query.Get("api-version")):
		return service.Refuse(http.StatusBadRequest, "BadParameter", "The specified version ("+printable(query.Get("api-version"))+
			") is not recognized. Consider using the latest supported version (2025-07-01).").
			Because("the only query parameter is api-version: " + strings.Join(keyAPIVersions(), ", "))
	case !keyPattern.MatchString(call.name):
		return service.Refuse(http.StatusBadRequest, "BadParameter", "The request URI contains an invalid name: "+printable(call.name))
	}
	if action := actionKeys + op.action; token.app == nil || !call.vault.allows(token.app.clientID, call.name, action) {
		return c.forbidKey(call, action)
	}
	return nil
}

// forbidKey returns the refusal of a caller without a role that allows a data action. Source: issue
// hashicorp/terraform-provider-azurerm#27817, which quotes an answer of Key Vault.
func (c *Cloud) forbidKey(call *keyCall, action string) *service.Refusal {
	id, location := c.vaultPlace(call.vault)
	resource := id + "/keys/" + call.name
	if call.version != "" {
		resource += "/" + printable(call.version)
	}
	return service.Refuse(http.StatusForbidden, "Forbidden", "Caller is not authorized to perform action on resource.\r\n"+
		"If role assignments, deny assignments or role definitions were changed recently, please observe propagation time.\r\n"+
		"Caller: "+call.caller+"\r\nAction: '"+action+"'\r\nResource: '"+strings.ToLower(resource)+"'\r\nAssignment: (not found)\r\n"+
		"DenyAssignmentId: null\r\nDecisionReason: null \r\nVault: "+call.vault.name+";location="+location+"\r\n").
		With("ForbiddenByRbac").Because("no role assignment lets " + call.caller + " do " + action)
}

// vaultCaller verifies the access token of a call. The token's app is nil if the application was
// deleted. Sources for the messages: recorded answers in Azure/azure-sdk-for-js; issues
// Azure/go-autorest#525 (AKV10022), Azure/azure-sdk-for-js#13036 (AKV10032),
// hashicorp/terraform-provider-azurerm#30912 (AKV10046), Azure/azure-sdk-for-python#27266 and
// #12368 (tokens outside their time).
func (c *Cloud) vaultCaller(call *keyCall) (accessToken, *service.Refusal) {
	raw, ok := wire.Bearer(call.Request.Request)
	if !ok {
		return accessToken{}, unknownCaller("AKV10000: Request is missing a Bearer or PoP token.")
	}
	token, err := c.readAccessToken(call.Request, raw)
	e, claims := call.vault.tenant.environment, call.Call
	issuer := e.issuer(call.vault.tenant.id)
	call.caller = "oid=" + printable(claims.Subject) + ";iss=" + printable(claims.Issuer)
	genuine := err == nil || errors.Is(err, errPrincipal)
	switch {
	case errors.Is(err, oidc.ErrExpired):
		return accessToken{}, unknownCaller("[TokenExpired] Error validating token: 'S2S12086'.")
	case errors.Is(err, oidc.ErrNotYetValid):
		return accessToken{}, unknownCaller("Error validating token: IDX10222")
	case errors.Is(err, oidc.ErrIssuer), genuine && claims.Issuer != issuer:
		return accessToken{}, unknownCaller("AKV10032: Invalid issuer. Expected one of " + issuer + ", found " + printable(claims.Issuer) + ".")
	case !genuine:
		return accessToken{}, unknownCaller("AKV10046: Unable to resolve the key used for signature validation.").Because(err.Error())
	case claims.Audience != e.vaultResource():
		return accessToken{}, unknownCaller("AKV10022: Invalid audience. Expected " + e.vaultResource() + ", found: " +
			printable(claims.Audience) + ".")
	case err == nil:
		claims.Principal = principalName(token.tenant, token.app)
		call.caller = "appid=" + token.app.clientID + ";" + call.caller
	}
	return token, nil
}

func unknownCaller(message string) *service.Refusal {
	return service.Refuse(http.StatusUnauthorized, "Unauthorized", message)
}

// badProperty returns the refusal of a body with an invalid value.
func badProperty(reason string) *service.Refusal {
	return service.Refuse(http.StatusBadRequest, "BadParameter", "Property has invalid value\r\n").Because(reason)
}

type vaultError struct {
	Code    string           `json:"code"`
	Message string           `json:"message,omitempty"`
	Inner   *vaultInnerError `json:"innererror,omitempty"`
}

type vaultInnerError struct {
	Code string `json:"code"`
}

// vaultProtocol returns the error format of key vaults. A refusal's Detail, if it is a string,
// becomes the code of the inner error. Source: Microsoft Learn, "Authentication, requests and
// responses" of Key Vault.
func vaultProtocol(v *keyVault) service.Protocol {
	return service.Protocol{
		Refuse: func(r *service.Request, no *service.Refusal) service.Answer {
			body := vaultError{Code: no.Code, Message: no.Message}
			if inner, ok := no.Detail.(string); ok {
				body.Inner = &vaultInnerError{Code: inner}
			}
			if no.Status == http.StatusUnauthorized {
				e := v.tenant.environment
				r.Reply.Set("Www-Authenticate", `Bearer authorization="https://`+e.authority()+"/"+v.tenant.id+
					`", resource="`+e.vaultResource()+`"`)
			}
			return writeJSON(no.Status, map[string]vaultError{"error": body})
		},
		Failure:     service.Refuse(http.StatusInternalServerError, "InternalServerError", "Internal server error"),
		Unavailable: service.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "Service unavailable"),
		Throttled: service.Refuse(http.StatusTooManyRequests, "Throttled",
			"Request was not processed because too many requests were received. Reason: VaultRequestTypeLimitReached"),
		Broken: service.Whole(http.StatusOK, jsonType, []byte(`{"kid":"https://`)),
	}
}
