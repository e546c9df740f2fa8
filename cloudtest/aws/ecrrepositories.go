package aws

import (
	"cmp"
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// Limits of ECR's parameters. Source: ECR API Reference, DescribeRepositories and DescribeImages.
const (
	defaultResults     = 100
	maxResults         = 1000
	maxImageIDs        = 100
	maxRepositoryNames = 100
)

// invalidECR returns ECR's refusal of a parameter.
func invalidECR(parameter, constraint string) *service.Refusal {
	return service.Refuse(http.StatusBadRequest, "InvalidParameterException",
		"Invalid parameter at '"+parameter+"' failed to satisfy constraint: '"+constraint+"'")
}

// registryInput has the account of a registry. The default is the caller's account.
type registryInput struct {
	RegistryID string `json:"registryId"`
}

func (in registryInput) registry(call *apiCall) string {
	return cmp.Or(in.RegistryID, call.who.account)
}

// repositoryInput identifies a repository of a registry.
type repositoryInput struct {
	registryInput

	RepositoryName string `json:"repositoryName"`
}

func checkRepositoryName(name string) *service.Refusal {
	if len(name) < 2 || len(name) > 256 || !repositoryPattern.MatchString(name) {
		return invalidECR("repositoryName",
			"must satisfy regular expression '(?:[a-z0-9]+(?:[._-][a-z0-9]+)*/)*[a-z0-9]+(?:[._-][a-z0-9]+)*'")
	}
	return nil
}

// pageInput has the parameters for one page of a list.
type pageInput struct {
	MaxResults *int   `json:"maxResults"`
	NextToken  string `json:"nextToken"`
}

func (in pageInput) refusal() *service.Refusal {
	if in.MaxResults != nil && (*in.MaxResults < 1 || *in.MaxResults > maxResults) {
		return invalidECR("maxResults", "Member must have value between 1 and "+strconv.Itoa(maxResults))
	}
	return nil
}

// absentWith refuses a list parameter that is too long. If the list is not empty, absentWith also
// refuses maxResults and nextToken.
func (in pageInput) absentWith(parameter string, n, longest int) *service.Refusal {
	switch {
	case n > longest:
		return invalidECR(parameter, "Member must have length less than or equal to "+strconv.Itoa(longest))
	case n > 0 && in.MaxResults != nil:
		return invalidECR("maxResults", "must be absent with "+parameter)
	case n > 0 && in.NextToken != "":
		return invalidECR("nextToken", "must be absent with "+parameter)
	}
	return nil
}

// page returns one page of a sorted list, and the token of the next page. The token contains the
// key of the page's last member. So no member is skipped if the list changes between two calls.
func page[T any](all []T, in pageInput, key func(T) string) (part []T, next string, refusal *service.Refusal) {
	if in.NextToken != "" {
		last, err := base64.RawURLEncoding.DecodeString(in.NextToken)
		if err != nil {
			return nil, "", invalidECR("nextToken", "must be a token of an earlier answer")
		}
		all = slices.DeleteFunc(all, func(member T) bool { return key(member) <= string(last) })
	}
	size := defaultResults
	if in.MaxResults != nil {
		size = *in.MaxResults
	}
	if len(all) <= size {
		return all, "", nil
	}
	return all[:size], base64.RawURLEncoding.EncodeToString([]byte(key(all[size-1]))), nil
}

// repositoryIn returns a repository of an account and the repository's policy. A missing repository
// is nil, and its policy is empty.
func (c *Cloud) repositoryIn(accountID, region, name string) (*repository, policy.Document) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	repo := c.account(accountID).repos[repositoryKey{region, name}]
	return repo, cmp.Or(repo, &repository{}).policy
}

// repositoryARN returns the ARN of a repository in an endpoint's region.
func repositoryARN(ep endpoint, accountID, name string) string {
	return "arn:" + ep.partition + ":ecr:" + ep.region + ":" + accountID + ":repository/" + name
}

// onRepository returns a repository, if the caller's policies and the repository's policy allow the
// call's operation. A caller without permission does not learn whether the repository exists.
func (c *Cloud) onRepository(call *apiCall, in registryInput, name string) (*repository, *service.Refusal) {
	owner := in.registry(call)
	if !policy.IsAccountID(owner) {
		return nil, invalidECR("registryId", "must satisfy regular expression '[0-9]{12}'")
	}
	repo, resourcePolicy := c.repositoryIn(owner, call.ep.region, name)
	if refusal := c.allowECR(call, owner, name, resourcePolicy); refusal != nil {
		return nil, refusal
	}
	if repo == nil {
		return nil, service.Refuse(http.StatusBadRequest, "RepositoryNotFoundException",
			"The repository with name '"+name+"' does not exist in the registry with id '"+owner+"'")
	}
	return repo, nil
}

// allowECR checks that the policies allow the call's operation on a repository. The name "*" means
// all repositories.
func (c *Cloud) allowECR(call *apiCall, owner, name string, resourcePolicy policy.Document) *service.Refusal {
	action := "ecr:" + call.Call.Operation
	call.Call.Resource = repositoryARN(call.ep, owner, name)
	return c.permit(call.who, ask{
		action: action, resource: call.Call.Resource, owner: owner, policy: resourcePolicy, context: requestContext(call.ep, call.Now),
	}, "AccessDenied")
}

// registryHost returns the host of an account's registry in an endpoint's region.
func registryHost(ep endpoint, accountID string) string {
	part, _ := partitionByID(ep.partition)
	return accountID + ".dkr.ecr." + ep.region + "." + part.suffix
}

// repositoryDetail is a repository in the answer of DescribeRepositories.
type repositoryDetail struct {
	ARN           string            `json:"repositoryArn"`
	RegistryID    string            `json:"registryId"`
	Name          string            `json:"repositoryName"`
	URI           string            `json:"repositoryUri"`
	CreatedAt     float64           `json:"createdAt"` // seconds since 1970
	TagMutability string            `json:"imageTagMutability"`
	Scanning      map[string]bool   `json:"imageScanningConfiguration"`
	Encryption    map[string]string `json:"encryptionConfiguration"`
}

// repositoriesInput is the input of DescribeRepositories.
type repositoriesInput struct {
	registryInput
	pageInput

	Names []string `json:"repositoryNames"`
}

// describeRepositories returns all repositories of a registry, or only those that the parameter
// repositoryNames lists.
func (c *Cloud) describeRepositories(call *apiCall, input repositoriesInput) (any, *service.Refusal) {
	if refusal := cmp.Or(input.absentWith("repositoryNames", len(input.Names), maxRepositoryNames), input.refusal()); refusal != nil {
		return nil, refusal
	}
	owner := input.registry(call)
	var found []*repository
	for _, name := range input.Names {
		if refusal := checkRepositoryName(name); refusal != nil {
			return nil, refusal
		}
		repo, refusal := c.onRepository(call, input.registryInput, name)
		if refusal != nil {
			return nil, refusal
		}
		found = append(found, repo)
	}
	if len(input.Names) == 0 {
		if refusal := c.allowECR(call, owner, "*", policy.Document{}); refusal != nil {
			return nil, refusal
		}
		found = c.repositoriesIn(owner, call.ep.region)
	}
	details := []repositoryDetail{}
	for _, repo := range found {
		details = append(details, repositoryDetail{
			ARN: repositoryARN(call.ep, owner, repo.key.name), RegistryID: owner, Name: repo.key.name,
			URI:       registryHost(call.ep, owner) + "/" + repo.key.name,
			CreatedAt: float64(repo.created.Unix()), TagMutability: "MUTABLE",
			Scanning: map[string]bool{"scanOnPush": false}, Encryption: map[string]string{"encryptionType": "AES256"},
		})
	}
	details, next, refusal := page(details, input.pageInput, func(d repositoryDetail) string { return d.Name })
	return struct {
		Repositories []repositoryDetail `json:"repositories"`
		NextToken    string             `json:"nextToken,omitempty"`
	}{details, next}, refusal
}

// repositoriesIn returns the repositories of an account in a region, sorted by name.
func (c *Cloud) repositoriesIn(accountID, region string) []*repository {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := slices.SortedFunc(maps.Values(c.account(accountID).repos),
		func(a, b *repository) int { return strings.Compare(a.key.name, b.key.name) })
	return slices.DeleteFunc(all, func(r *repository) bool { return r.key.region != region })
}
