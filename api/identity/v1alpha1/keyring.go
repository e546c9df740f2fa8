package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KeyRingKind is the kind of a KeyRing in manifests.
const KeyRingKind = "KeyRing"

// IssuerKeyRing is the name of the KeyRing with the keys that sign the tokens of
// WorkloadIdentities. This KeyRing is in the namespace of the token server.
const IssuerKeyRing = "issuer"

// SPIFFEKeyRing is the name of the KeyRing of the SPIFFE trust domain. It has the keys of JWT-SVIDs
// and the authorities of X.509-SVIDs. This KeyRing is in the namespace of the token server.
const SPIFFEKeyRing = "spiffe"

// Algorithm is the signature algorithm of a key, by its name in RFC 7518 §3.1. The algorithm
// decides the type of the key:
//   - RS256: an RSA key of 2048 bits
//   - ES256: a key on the curve P-256
//   - ES384: a key on the curve P-384
//
// +kubebuilder:validation:Enum=RS256;ES256;ES384
type Algorithm string

// The algorithms of keys in a ring.
const (
	RS256 Algorithm = "RS256"
	ES256 Algorithm = "ES256"
	ES384 Algorithm = "ES384"
)

// KeyState is the state of a key or an authority in its life cycle. A key moves only forward,
// except from Published back to Pending. Verifiers read the keys from the public document. Keys
// that are Pending, Published, Active or Retiring belong in this document.
//
// +kubebuilder:validation:Enum=Pending;Published;Active;Retiring;Removed;Revoked
type KeyState string

// The states of a key.
const (
	// KeyPending says that the key belongs in the public document, but has not been seen there yet,
	// or has disappeared from it.
	KeyPending KeyState = "Pending"

	// KeyPublished says that the key is in the public document. It may sign after the publish
	// delay.
	KeyPublished KeyState = "Published"

	// KeyActive says that the key signs. Each algorithm has at most one active key.
	KeyActive KeyState = "Active"

	// KeyRetiring says that the key does not sign any more, but its signatures may still be valid.
	KeyRetiring KeyState = "Retiring"

	// KeyRemoved says that everything that the key has signed has expired. The entry stays in the
	// ring for a while, because cached copies of the public document may still contain the key.
	KeyRemoved KeyState = "Removed"

	// KeyRevoked says that everything that the key has signed must be refused.
	KeyRevoked KeyState = "Revoked"
)

// Condition types of a KeyRing besides meta.ConditionReady. Ready is True while every algorithm
// has an active key.
const (
	// ConditionCanRotate is True while nothing hinders the next rotation. While it is False, a
	// revocation still works.
	ConditionCanRotate = "CanRotate"
)

// Reasons of a KeyRing's conditions. The reason is meta.ReasonSucceeded while a condition is True.
const (
	// ReasonNotPublished says that the next key may not sign yet. Either the publish delay has not
	// passed, or the key was not seen in the public document. A key that people have confirmed
	// counts as seen.
	ReasonNotPublished = "NotPublished"

	// ReasonForeignKey says that Lanyard lacks the private half of some key. The key is in the ring
	// or in the public document. Rotation stops until the key is revoked, or leaves the document.
	ReasonForeignKey = "ForeignKey"

	// ReasonClockSkew says that the clocks of the token server and of the API server differ by more
	// than a minute. Changes that depend on time wait until the clocks agree.
	ReasonClockSkew = "ClockSkew"

	// ReasonDocumentUnreachable says that the public document could not be read.
	ReasonDocumentUnreachable = "DocumentUnreachable"

	// ReasonNoKey says one of these:
	//   - The KeyRing is switched off.
	//   - An algorithm has no key that can sign.
	//   - An active key is due to be replaced, but has no successor.
	//
	// For X.509-SVIDs, the reason is about authorities instead of keys.
	ReasonNoKey = "NoKey"
	// ReasonImportFailed says that the ring cannot import the CA from the Secret that
	// --spiffe-secret-name names. The ring's active authority continues to sign until it expires.
	ReasonImportFailed = "ImportFailed"
)

// KeyRing holds the public keys of one issuer and their states. The KeyRing of a SPIFFE trust
// domain also holds its X.509 authorities. The private keys are in Secrets of the same namespace,
// or in a key management service. People write the spec. Only the token server writes the status.
// Whoever can add a key to the status can forge tokens of every tenant. So an admission policy
// refuses all other writers of the status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=lkr,categories=lanyard
// +kubebuilder:printcolumn:name="Issuer",type=string,JSONPath=`.status.issuer`,description="Issuer whose keys these are"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True while every algorithm has an active key"
// +kubebuilder:printcolumn:name="Can Rotate",type=string,JSONPath=`.status.conditions[?(@.type=="CanRotate")].status`,description="True while nothing hinders the next rotation"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="CanRotate")].reason`,description="What hinders the next rotation, for programs"
// +kubebuilder:printcolumn:name="Active",type=string,JSONPath=`.status.keys[?(@.state=="Active")].kid`,description="The active key; the first, if there are several algorithms"
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.keys[?(@.state=="Active")].activatedAt`,description="Time since that key became active"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the object was created"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="CanRotate")].message`,description="What hinders the next rotation, and what to do"
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || has(self.status)",message="status must stay: it has the keys"
type KeyRing struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec holds administrators' requests to rotate, confirm or revoke keys. The commands "lanyard
	// keys rotate", "lanyard keys confirm" and "lanyard keys revoke" write it.
	//
	// +optional
	Spec KeyRingSpec `json:"spec,omitempty"`

	// status holds the public keys and their states. Only the token server writes the status.
	//
	// +optional
	Status KeyRingStatus `json:"status,omitempty"`
}

// KeyRingSpec holds administrators' requests to rotate, confirm or revoke keys.
type KeyRingSpec struct {
	// rotate requests a rotation when its value changes. Each key that is active at this change is
	// replaced as soon as its successor may sign. By convention, the value is the time of the
	// request in RFC 3339. Default: none; keys rotate by schedule.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Rotate string `json:"rotate,omitempty"`

	// confirm lists keys and authorities that verifiers can read in the public document. A
	// confirmation replaces the token server's own check of the document. Use it for documents in a
	// bucket or behind an air gap.
	//
	// +optional
	// +listType=map
	// +listMapKey=kid
	// +kubebuilder:validation:MaxItems=32
	Confirm []KeyConfirmation `json:"confirm,omitempty"`

	// revoke lists the kids of keys, and the ids of authorities, that must not be trusted any more.
	// A key in this list stops signing and leaves the public document at once. Removing an entry
	// from the list does not bring the key back.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^([A-Za-z0-9_-]{43}|[0-9a-f]{64})$')",message="revoke must contain kids of 43 letters, digits, - or _, or ids of authorities, 64 hexadecimal digits, as lanyard keys list shows them"
	Revoke []string `json:"revoke,omitempty"`
}

// KeyConfirmation is an administrator's statement that a key or an authority is published.
type KeyConfirmation struct {
	// kid is the ID of the key or of the authority. For a key, it is the value of
	// status.keys[].kid. For an authority, it is the value of status.authorities[].id.
	//
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_-]{43}|[0-9a-f]{64})$')",message="kid must be 43 letters, digits, - or _, or an authority's 64 hexadecimal digits, as lanyard keys list shows it"
	KID string `json:"kid"`

	// skipDelay lets the key sign without the publish delay. Set it only if each cached copy of
	// this issuer's document contains the key. A verifier with an older copy may refuse tokens
	// until its cache expires. Default: false.
	//
	// +optional
	SkipDelay bool `json:"skipDelay,omitempty"`
}

// KeyRingStatus holds the public keys and their states.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.authorities) || oldSelf.authorities.all(o, o.state in ['Removed','Revoked'] || (has(self.authorities) && self.authorities.exists(a, a.id == o.id)))",message="an authority leaves the ring only after it was removed or revoked"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.revision) || (has(self.revision) && self.revision >= oldSelf.revision)",message="revision must not go back: write the status of the newest KeyRing"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.keys) || oldSelf.keys.all(o, o.state in ['Removed','Revoked'] || (has(self.keys) && self.keys.exists(k, k.kid == o.kid)))",message="a key leaves the ring only after it was removed or revoked"
type KeyRingStatus struct {
	// observedGeneration is the metadata.generation that the status describes.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready and CanRotate.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// revision counts the changes of the status. A ring that has a lower revision than before
	// comes from a backup.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Revision int64 `json:"revision,omitempty"`

	// issuer is the https URL of the issuer that signs with these keys; source: RFC 8414 §2.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Issuer string `json:"issuer,omitempty"`

	// trustDomain is the SPIFFE trust domain of the ring's keys and authorities, such as
	// "example.com"; source: SPIFFE-ID §2.1. Only the KeyRing of a trust domain has this field.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	TrustDomain string `json:"trustDomain,omitempty"`

	// publishDelay is how long a key must be in the public document before it may sign. Caches must
	// keep the document for a shorter time.
	//
	// +optional
	PublishDelay metav1.Duration `json:"publishDelay,omitzero"`

	// otherKeysSeen says that verifiers may have cached keys that are not in this ring. For
	// example, the issuer's public document had such keys before the ring's first key, or Secrets
	// of an earlier ring were found. Usually, a ring's first keys need not wait for the publish
	// delay. While this field is true, the first keys must wait.
	//
	// +optional
	OtherKeysSeen bool `json:"otherKeysSeen,omitempty"`

	// keys are the ring's keys in the order in which they were made.
	//
	// +optional
	// +listType=map
	// +listMapKey=kid
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="['RS256','ES256','ES384'].all(a, self.filter(k, k.algorithm == a && k.state == 'Active').size() <= 1)",message="each algorithm has at most one active key"
	Keys []RingKey `json:"keys,omitempty"`

	// authorities are the CAs of X.509-SVIDs, in the order in which they joined the ring.
	//
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.filter(a, a.state == 'Active').size() <= 1",message="there is at most one active authority"
	Authorities []Authority `json:"authorities,omitempty"`
}

// RingKey is the public half of a key and its state.
//
// +kubebuilder:validation:XValidation:rule="self.publicKey == oldSelf.publicKey && self.algorithm == oldSelf.algorithm",message="a key never changes: make a new key"
type RingKey struct {
	// kid is the key's ID, the SHA-256 thumbprint of its public half in base64url; source: RFC
	// 7638. A key with any other kid is ignored.
	//
	// +required
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_-]{43}$')",message="kid must be the key's RFC 7638 thumbprint"
	KID string `json:"kid"`

	// algorithm is the signature algorithm of the key, by its name in RFC 7518 §3.1: RS256, ES256
	// or ES384.
	//
	// +required
	Algorithm Algorithm `json:"algorithm"`

	// publicKey is the public half of the key, as PEM of a SubjectPublicKeyInfo ("PUBLIC KEY");
	// source: RFC 7468 §13. The Go type is string, because the schema gives a []byte the format
	// "byte". The API server's validation rules fail on a field of this format if its value has "+"
	// or "/".
	//
	// +required
	// +kubebuilder:validation:MaxLength=2048
	PublicKey string `json:"publicKey"`

	KeyLife `json:",inline"`
}

// Authority is a CA of X.509-SVIDs and its state.
//
// +kubebuilder:validation:XValidation:rule="self.certificate == oldSelf.certificate && self.kid == oldSelf.kid && has(self.imported) == has(oldSelf.imported)",message="an authority never changes: add another one"
type Authority struct {
	// id is the SHA-256 digest of the certificate's DER, in 64 hexadecimal digits. An authority
	// with any other id is ignored.
	//
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{64}$')",message="id must be the SHA-256 digest of the certificate"
	ID string `json:"id"`

	// certificate is the CA certificate that verifiers trust, as PEM ("CERTIFICATE"); source: RFC
	// 7468 §5. The public SPIFFE bundle contains this certificate.
	//
	// +required
	// +kubebuilder:validation:MaxLength=8192
	Certificate string `json:"certificate"`

	// imported says that the certificate comes from the Secret of --spiffe-secret-name. The ring
	// does not have the private key of such a certificate. So SVIDs are signed with the key of an
	// intermediate. Default: false.
	//
	// +optional
	Imported bool `json:"imported,omitempty"`

	// kid is the ID of the ring's key that signs X.509-SVIDs. The ID is the SHA-256 thumbprint of
	// the key in base64url; source: RFC 7638. If imported is true, the field intermediate has the
	// certificate of this key. Otherwise, the field certificate has it.
	//
	// +required
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_-]{43}$')",message="kid must be the key's RFC 7638 thumbprint"
	KID string `json:"kid"`

	// intermediate is the certificate of the ring's key, signed by an imported authority, as PEM
	// ("CERTIFICATE"). The intermediate is renewed as long as the Secret of --spiffe-secret-name
	// has the authority's key. The field is absent if the authority is not imported.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Intermediate string `json:"intermediate,omitempty"`

	KeyLife `json:",inline"`
}

// KeyLife has the state of a key or an authority, and the times at which the state changed.
//
// +kubebuilder:validation:XValidation:rule="self.state == oldSelf.state || self.state == 'Revoked' || (oldSelf.state == 'Pending' && self.state in ['Published','Active','Removed']) || (oldSelf.state == 'Published' && self.state in ['Pending','Active','Removed']) || (oldSelf.state == 'Active' && self.state == 'Retiring') || (oldSelf.state == 'Retiring' && self.state == 'Removed')",message="a key's state only moves forward: Pending, Published, Active, Retiring, Removed; or to Revoked",fieldPath=".state"
// +kubebuilder:validation:XValidation:rule="oldSelf.state != 'Revoked' || self.state == 'Revoked'",message="a revoked key stays revoked",fieldPath=".state"
type KeyLife struct {
	// state is the state of the key in its life cycle.
	//
	// +required
	State KeyState `json:"state"`

	// maxLife is the longest lifetime of the tokens and certificates that the key signs. Signers
	// refuse a longer lifetime. The field is absent until the key is active, and its value never
	// decreases.
	//
	// +optional
	MaxLife metav1.Duration `json:"maxLife,omitzero"`

	// rotation is the value that spec.rotate had when the key became active. An active key is due
	// to be replaced if spec.rotate has another value now.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Rotation string `json:"rotation,omitempty"`

	// tainted says that the key was in the public document together with a key that was revoked
	// later. A verifier that has cached both keys has no reason to read the document again. So this
	// verifier still trusts the revoked key. To make such verifiers read the document, a tainted
	// key is replaced as soon as an untainted key may sign.
	//
	// +optional
	Tainted bool `json:"tainted,omitempty"`

	// createdAt is when the key was made, UTC.
	//
	// +required
	CreatedAt metav1.Time `json:"createdAt"`

	// publishedAt is when the key became Published, UTC. The publish delay begins at this time. The
	// field is absent while the key is Pending.
	//
	// +optional
	PublishedAt *metav1.Time `json:"publishedAt,omitempty"`

	// activatedAt is when the key became active, UTC.
	//
	// +optional
	ActivatedAt *metav1.Time `json:"activatedAt,omitempty"`

	// retiredAt is when the key stopped being active, UTC.
	//
	// +optional
	RetiredAt *metav1.Time `json:"retiredAt,omitempty"`

	// removedAt is the time, in UTC, when the key was removed or revoked. This takes the key
	// out of the public document.
	//
	// +optional
	RemovedAt *metav1.Time `json:"removedAt,omitempty"`
}

// KeyRingList is a list of KeyRing objects.
//
// +kubebuilder:object:root=true
type KeyRingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects of the list.
	Items []KeyRing `json:"items"`
}
