// Package health says whether objects of a cluster have become what their manifests ask for. For
// example, a Deployment is ready once enough of its pods are.
//
// Most kinds are judged by kstatus, whose rules are those of kubectl and Flux. A tenant can judge its
// own kinds with CEL expressions ([Check]).
package health
