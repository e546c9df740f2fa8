package gcp

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// iamHost is the host in the names of workload identity pools. It is the same in every universe.
// Source: IAM, "Principal identifiers".
const iamHost = "iam.googleapis.com"

// workloadPool is the end of the name of a project's own GKE workload identity pool.
const workloadPool = ".svc.id.goog"

// Domains of service accounts' addresses. Source: IAM, "Types of service accounts".
const (
	userAccounts      = ".iam.gserviceaccount.com"
	computeAccounts   = "-compute@developer.gserviceaccount.com"
	appEngineAccounts = "@appspot.gserviceaccount.com"
)

// projectPattern matches a project ID. The ID may begin with a domain or the prefix of another
// universe, followed by a colon. Source: Resource Manager, "Creating and managing projects".
var projectPattern = regexp.MustCompile(`\A(?:[a-z](?:[a-z0-9.-]{0,61}[a-z0-9])?:)?[a-z][a-z0-9-]{4,28}[a-z0-9]\z`)

// kubernetesPoolPattern matches the name of a project's own GKE workload identity pool, without
// ".svc.id.goog". The name is the project ID, or <project>.<prefix> in another universe.
var kubernetesPoolPattern = regexp.MustCompile(
	`\A(?:(?:[a-z](?:[a-z0-9.-]{0,61}[a-z0-9])?:)?[a-z][a-z0-9-]{4,28}[a-z0-9]|[a-z][a-z0-9-]{4,28}[a-z0-9]\.[a-z][a-z0-9-]{0,30})\z`)

var numberPattern = regexp.MustCompile(`\A[1-9][0-9]{0,18}\z`)

// poolPattern matches a pool's or a provider's ID. Source: IAM API,
// projects.locations.workloadIdentityPools.create.
var poolPattern = regexp.MustCompile(`\A[a-z][a-z0-9-]{3,31}\z`)

var accountPattern = regexp.MustCompile(`\A[a-z][a-z0-9-]{4,28}[a-z0-9]\z`)

var uniqueIDPattern = regexp.MustCompile(`\A[0-9]{21}\z`)

// clusterPattern matches a GKE cluster's name. Source: GKE API, Cluster.name.
var clusterPattern = regexp.MustCompile(`\A[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?\z`)

// locationPattern matches a region or a zone. Outside the public universe, the name begins with
// "u-".
var locationPattern = regexp.MustCompile(`\A(?:u-)?[a-z]+-[a-z]+[0-9]+(?:-[a-z])?\z`)

// kubernetesPattern matches a namespace or a ServiceAccount's name. Source: RFC 1123 §2.1 as
// Kubernetes reads it.
var kubernetesPattern = regexp.MustCompile(`\A[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\z`)

// isBucketName reports whether a bucket can have the name. It refuses the first words of the JSON
// API's paths, such as "storage". If a bucket had that name, the path /storage/v1/b/… could mean an
// object in the bucket or a call of the JSON API. Source: Cloud Storage, "About Cloud Storage
// buckets: bucket names".
func isBucketName(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return false
	}
	reserved := slices.Contains([]string{"storage", "download", "upload", "resumable", "batch"}, name)
	return !reserved && bucketPattern.MatchString(name) && !strings.Contains(name, "..") &&
		!strings.HasPrefix(name, "goog") && !strings.Contains(name, "google")
}

var bucketPattern = regexp.MustCompile(`\A[a-z0-9](?:[a-z0-9._-]{1,61}[a-z0-9])\z`)

// repositoryPattern matches the name of a repository of Artifact Registry. Names of gcr.io's
// repositories have dots.
var repositoryPattern = regexp.MustCompile(`\A(?:[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?|(?:(?:us|eu|asia)\.)?gcr\.io)\z`)

// addressForm returns a project ID in the form for addresses: "example.com:project" becomes
// "project.example.com".
func addressForm(projectID string) string {
	if domain, name, ok := strings.Cut(projectID, ":"); ok {
		return name + "." + domain
	}
	return projectID
}

// isAddress reports whether email can be the address of a service account of the project. A
// project ID with a prefix without dots, such as "s3ns:project", belongs to another universe than
// Google's public one. There, the domain of Compute Engine accounts contains the prefix. Source:
// Cloud de Confiance by S3NS, "Key differences".
func isAddress(email, projectID, number string) bool {
	if email == number+computeAccounts || email == addressForm(projectID)+appEngineAccounts {
		return true
	}
	if prefix, _, ok := strings.Cut(projectID, ":"); ok && !strings.Contains(prefix, ".") &&
		email == number+"-compute@developer."+prefix+"-system"+userAccounts {
		return true
	}
	name, ok := strings.CutSuffix(email, "@"+addressForm(projectID)+userAccounts)
	return ok && accountPattern.MatchString(name)
}

// poolName returns a pool's resource name.
func poolName(number, pool string) string {
	return "projects/" + number + "/locations/global/workloadIdentityPools/" + pool
}

// providerName returns a provider's resource name.
func providerName(number, pool, provider string) string {
	return poolName(number, pool) + "/providers/" + provider
}

// parseProviderName splits a provider's resource name.
func parseProviderName(name string) (number, pool, provider string, ok bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 8 {
		return "", "", "", false
	}
	number, pool, provider = parts[1], parts[5], parts[7]
	return number, pool, provider, name == providerName(number, pool, provider) &&
		numberPattern.MatchString(number) && poolPattern.MatchString(pool) && poolPattern.MatchString(provider)
}

// parseSubject splits the claim sub of a Kubernetes token.
func parseSubject(sub string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(sub, "system:serviceaccount:")
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && kubernetesPattern.MatchString(namespace) && kubernetesPattern.MatchString(name)
}

// Members that mean groups of callers. Source: IAM, "Principal identifiers".
const (
	allUsers              = "allUsers"
	allAuthenticatedUsers = "allAuthenticatedUsers"
)

// checkMember says what is wrong with a binding's member. It returns "" for a valid member.
func checkMember(member string) string {
	if member == allUsers || member == allAuthenticatedUsers {
		return ""
	}
	if email, ok := strings.CutPrefix(member, "serviceAccount:"); ok {
		return checkAccountMember(email)
	}
	kind, rest, ok := strings.Cut(member, "://"+iamHost+"/projects/")
	if !ok || (kind != "principal" && kind != "principalSet") {
		return "the local cloud knows serviceAccount:, principal:// and principalSet:// of " +
			iamHost + ", " + allUsers + " and " + allAuthenticatedUsers
	}
	number, rest, _ := strings.Cut(rest, "/")
	rest, ok = strings.CutPrefix(rest, "locations/global/workloadIdentityPools/")
	if !ok || !numberPattern.MatchString(number) {
		return "write it as " + kind + "://" + iamHost +
			"/projects/<number>/locations/global/workloadIdentityPools/<pool>/…; the number, not the ID"
	}
	pool, which, _ := strings.Cut(rest, "/")
	if project, gke := strings.CutSuffix(pool, workloadPool); !poolPattern.MatchString(pool) &&
		(!gke || !kubernetesPoolPattern.MatchString(project)) {
		return "it names no pool"
	}
	what, value, _ := strings.Cut(which, "/")
	switch {
	case kind == "principal" && (what == "subject" || what == "kubernetes.serviceaccount.uid") && value != "":
	case kind == "principalSet" && which == "*":
	case kind == "principalSet" &&
		(strings.HasPrefix(what, "attribute.") || what == "namespace" || what == "kubernetes.cluster") && value != "":
	default:
		return "it ends neither in one of principal's subject/… and kubernetes.serviceaccount.uid/… nor of principalSet's *, attribute.<name>/…, namespace/… " +
			"and kubernetes.cluster/…"
	}
	return ""
}

func checkAccountMember(email string) string {
	if pool, account, ok := strings.Cut(email, "["); ok {
		project, gke := strings.CutSuffix(pool, workloadPool)
		account, closed := strings.CutSuffix(account, "]")
		namespace, name, two := strings.Cut(account, "/")
		if !gke || !closed || !two || !kubernetesPoolPattern.MatchString(project) ||
			!kubernetesPattern.MatchString(namespace) || !kubernetesPattern.MatchString(name) {
			return "write it as serviceAccount:<project>" + workloadPool + "[<namespace>/<name>]"
		}
		return ""
	}
	name, domain, ok := strings.Cut(email, "@")
	if !ok || name == "" || (domain != "developer.gserviceaccount.com" &&
		domain != "appspot.gserviceaccount.com" && !strings.HasSuffix(domain, userAccounts)) {
		return "it is not the address of a service account"
	}
	return ""
}
