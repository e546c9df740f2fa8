package kustomize

// Spec says what to build from an archive. The fields have the meaning of the fields with the same
// names in Flux's Kustomization.
type Spec struct {
	// Path is the folder in the archive, such as "./apps". Empty means the archive's root. If the
	// folder has no kustomization file, all its YAML files are built.
	Path string `json:"path,omitempty"`
	// NamePrefix and NameSuffix are added to the names of all objects.
	NamePrefix string `json:"namePrefix,omitempty"`
	NameSuffix string `json:"nameSuffix,omitempty"`
	// TargetNamespace replaces the namespace of all objects that have one.
	TargetNamespace string `json:"targetNamespace,omitempty"`
	// Patches are applied after the patches of the kustomization file.
	Patches []Patch `json:"patches,omitempty"`
	// Images change images of containers. They override entries of the kustomization file.
	Images []Image `json:"images,omitempty"`
	// Components are folders in the archive, relative to Path.
	Components []string `json:"components,omitempty"`
	// IgnoreMissingComponents leaves out components that do not exist.
	IgnoreMissingComponents bool `json:"ignoreMissingComponents,omitempty"`
	// BuildMetadata replaces the field buildMetadata of the kustomization file.
	BuildMetadata []string `json:"buildMetadata,omitempty"`
	// Substitute says which variables to replace after the build. Nil replaces none.
	Substitute *Substitute `json:"substitute,omitempty"`
}

// Patch is a strategic merge patch, or a JSON patch (RFC 6902), in YAML.
type Patch struct {
	// Patch is the text of the patch.
	Patch string `json:"patch"`
	// Target selects the objects; nil means the object that the patch names.
	Target *Target `json:"target,omitempty"`
}

// Target selects objects. Empty fields select all. The names are regular expressions that match
// the whole name.
type Target struct {
	Group              string `json:"group,omitempty"`
	Version            string `json:"version,omitempty"`
	Kind               string `json:"kind,omitempty"`
	Name               string `json:"name,omitempty"`
	Namespace          string `json:"namespace,omitempty"`
	LabelSelector      string `json:"labelSelector,omitempty"`
	AnnotationSelector string `json:"annotationSelector,omitempty"`
}

// Image changes the images with a name.
type Image struct {
	// Name is the image without tag and digest.
	Name string `json:"name"`
	// NewName replaces the name, NewTag the tag, and Digest the digest. Empty fields change
	// nothing. Digest takes precedence over NewTag.
	NewName string `json:"newName,omitempty"`
	NewTag  string `json:"newTag,omitempty"`
	Digest  string `json:"digest,omitempty"`
}
