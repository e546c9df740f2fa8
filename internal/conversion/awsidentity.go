package conversion

import (
	yamlnode "go.yaml.in/yaml/v3"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// grantField is the path of the grant, which says who may use an AWS identity.
const grantField = "spec.allowedNamespaces"

// checkGrant refuses a grant that Lanyard and Cluster API Provider AWS read in different ways.
// Cluster API Provider AWS admits every namespace if neither list nor selector has a value. Lanyard
// admits every namespace only if the whole grant is {}.
func (o *object) checkGrant() {
	grant := get(o.root, "spec", "allowedNamespaces")
	if grant == nil {
		return
	}
	// Do not decode into the type AllowedNamespaces, because its decoder reports no errors.
	var read struct {
		Spec struct {
			AllowedNamespaces *struct {
				List     []string                      `json:"list"`
				Selector *identityv1.NamespaceSelector `json:"selector"`
			} `json:"allowedNamespaces"`
		} `json:"spec"`
	}
	if err := o.document.Member(mapping("spec", mapping("allowedNamespaces", grant))).Decode(&read); err != nil {
		o.report(err)
		return
	}
	says := read.Spec.AllowedNamespaces
	if says == nil || len(grant.Content) == 0 {
		return
	}
	selects := says.Selector != nil && len(says.Selector.MatchLabels)+len(says.Selector.MatchExpressions) > 0
	switch {
	case says.List == nil && !selects:
		o.refuse(grantField, "Cluster API Provider AWS may read this as every namespace, and Lanyard reads it as none; "+
			"write {} for every namespace, or name namespaces in list")
	case says.Selector != nil && !selects:
		o.note(grantField, "%s.selector is dropped: it is empty and admits nobody, so the list alone decides, as before", grantField)
		remove(grant, "selector")
	}
}

// changeStaticIdentity changes spec.secretRef from a Secret's name to a reference.
func (o *object) changeStaticIdentity() {
	o.checkGrant()
	secret := get(o.root, "spec", "secretRef")
	if secret == nil || secret.Kind != yamlnode.ScalarNode {
		return
	}
	o.note("spec.secretRef", "Secret %s must have the type %s, and lie in the namespace of identities",
		secret.Value, identityv1.SecretTypeAWSStatic)
	name := *secret
	*secret = *mapping("name", &name)
}
