package gcp

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// tokenError translates a verifier's error into a refusal by STS.
func tokenError(err error, t oidc.Token) *service.Refusal {
	grant := func(message string) *service.Refusal {
		return service.Refuse(http.StatusBadRequest, invalidGrant, message).Because(err.Error())
	}
	switch {
	case errors.Is(err, oidc.ErrExpired):
		return grant(fmt.Sprintf("ID Token issued at %d is stale to sign-in.", t.IssuedAt.Unix()))
	case errors.Is(err, oidc.ErrNotYetValid):
		return grant(fmt.Sprintf("ID Token issued at %d is not valid yet.", t.IssuedAt.Unix()))
	case errors.Is(err, oidc.ErrUnreachable), errors.Is(err, oidc.ErrIssuer):
		return grant("Error connecting to the given credential's issuer.")
	default: // ErrKey, ErrSignature
		return grant("Unable to verify the ID Token signature.")
	}
}

// identify applies the attribute mapping to a verified token's claims, and then evaluates the
// condition. It adds the subject and the attributes to the given principal, whose pool must be set.
func (p *provider) identify(t oidc.Token, who principal) (principal, *service.Refusal) {
	variables := map[string]any{"assertion": t.Claims}
	attributes, size := map[string]any{}, 0
	for _, m := range p.mappings {
		value, err := m.expr.Eval(variables)
		text, ok := value.(string)
		switch {
		case err != nil:
			return principal{}, service.Refuse(http.StatusBadRequest, invalidGrant,
				"The attribute mapping of "+m.target+" could not be evaluated over the given credential.").
				Because(m.target + ": " + err.Error())
		case !ok || text == "":
			return principal{}, service.Refuse(http.StatusBadRequest, invalidGrant,
				"The mapped attribute '"+m.target+"' must be of type STRING").
				Because(m.target + " came out empty or as something else than a string")
		}
		size += len(text)
		if m.target == "google.subject" {
			if len(text) > maxSubject {
				return principal{}, badRequest(fmt.Sprintf(
					"The size of mapped attribute google.subject exceeds the %d bytes limit. Either modify your attribute mapping "+
						"or the incoming assertion to produce a mapped attribute that is less than %d bytes.", maxSubject, maxSubject))
			}
			who.subject = text
			continue
		}
		attributes[strings.TrimPrefix(m.target, "attribute.")] = text
		who.others = append(who.others, "principalSet://"+iamHost+"/"+who.pool+"/"+m.target+"/"+text)
	}
	if size > maxAttributeBytes {
		return principal{}, badRequest(fmt.Sprintf("The size of mapped attributes exceeds the %d bytes limit.", maxAttributeBytes))
	}
	if p.condition == nil {
		return who, nil
	}
	variables["google"], variables["attribute"] = map[string]any{"subject": who.subject}, attributes
	if value, err := p.condition.Eval(variables); err != nil || value != true {
		refusal := service.Refuse(http.StatusBadRequest, unauthorizedClient, "The given credential is rejected by the attribute condition.")
		if err != nil {
			refusal.Reason = "the attribute condition: " + err.Error()
		}
		return principal{}, refusal
	}
	return who, nil
}

// kubernetesPrincipal returns the identity of a Kubernetes ServiceAccount in the pool of the
// cluster's project. Sources: GKE, "Workload Identity Federation for GKE: principal identifiers";
// IAM, "Principal identifiers".
func kubernetesPrincipal(t oidc.Token, number, pool, clusterURL string) (principal, *service.Refusal) {
	namespace, name, ok := parseSubject(t.Subject)
	if !ok {
		return principal{}, service.Refuse(http.StatusBadRequest, invalidGrant,
			"The subject in ID Token is not a Kubernetes service account.")
	}
	who := principal{pool: poolName(number, pool), subject: "ns/" + namespace + "/sa/" + name}
	prefix := "://" + iamHost + "/" + who.pool
	who.others = []string{
		"serviceAccount:" + pool + "[" + namespace + "/" + name + "]",
		"principalSet" + prefix + "/namespace/" + namespace,
		"principalSet" + prefix + "/kubernetes.cluster/" + clusterURL,
	}
	if uid := kubernetesUID(t); uid != "" {
		who.others = append(who.others, "principal"+prefix+"/kubernetes.serviceaccount.uid/"+uid)
	}
	return who, nil
}

// kubernetesUID returns the claim kubernetes.io.serviceaccount.uid.
func kubernetesUID(t oidc.Token) string {
	private, _ := t.Claims["kubernetes.io"].(map[string]any)
	account, _ := private["serviceaccount"].(map[string]any)
	uid, _ := account["uid"].(string)
	return uid
}
