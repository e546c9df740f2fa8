package kustomize

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/yaml"
)

// generate writes the fields of the spec into the kustomization file of the folder. If the folder
// has no kustomization file, generate makes one that lists all YAML files. It returns the folder.
func (f *files) generate(spec Spec) (folder string, err error) {
	folder = path.Clean("/" + spec.Path)[1:]
	if folder == "" {
		folder = "."
	}
	if !f.folders[folder] {
		return "", invalid("spec.path", "the artifact has no folder "+quote(spec.Path), "correct the path, or add the folder to the source")
	}
	name, k, err := f.kustomization(folder)
	if err != nil {
		return "", err
	}
	if err := f.overlay(k, folder, spec); err != nil {
		return "", err
	}
	content, err := yaml.Marshal(k)
	if err != nil {
		return "", invalid(name, err.Error(), "correct the file")
	}
	f.content[name] = content
	return folder, nil
}

// kustomization returns the name and the content of the folder's kustomization file. If there is no
// such file, kustomization returns a new one.
func (f *files) kustomization(folder string) (name string, k *types.Kustomization, err error) {
	found := f.kustomizationFiles(folder)
	if len(found) > 1 {
		return "", nil, invalid(strings.Join(found, ", "), "the folder has several kustomization files", "keep one of them")
	}
	k = &types.Kustomization{TypeMeta: types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind}}
	if len(found) == 0 {
		k.Resources = f.manifests(folder)
		if len(k.Resources) == 0 {
			// kustomize refuses an empty kustomization file, so set any field.
			k.Namespace = "_placeholder"
		}
		return path.Join(folder, konfig.DefaultKustomizationFileName()), k, nil
	}
	standard := k.TypeMeta
	if err := k.Unmarshal(f.content[found[0]]); err != nil {
		return "", nil, invalid(found[0], err.Error(), "correct the file")
	}
	k.Kind, k.APIVersion = cmp.Or(k.Kind, standard.Kind), cmp.Or(k.APIVersion, standard.APIVersion)
	if len(k.Resources) == 0 {
		// The spec may add all there is, so the file may be empty. kustomize refuses an empty
		// kustomization file, so set any field.
		k.BuildMetadata = []string{types.OriginAnnotations}
	}
	return found[0], k, nil
}

// overlay adds the fields of the spec to a kustomization file of a folder.
func (f *files) overlay(k *types.Kustomization, folder string, spec Spec) error {
	setIfGiven(&k.Namespace, spec.TargetNamespace)
	setIfGiven(&k.NamePrefix, spec.NamePrefix)
	setIfGiven(&k.NameSuffix, spec.NameSuffix)
	for _, patch := range spec.Patches {
		k.Patches = append(k.Patches, types.Patch{Patch: patch.Patch, Target: patch.Target.selector()})
	}
	for _, component := range spec.Components {
		name, err := resolve("spec.components", folder, component, isRepository)
		if err != nil {
			return err
		}
		if spec.IgnoreMissingComponents && !f.folders[name] && !f.isFile(name) {
			continue
		}
		k.Components = append(k.Components, component)
	}
	for _, image := range spec.Images {
		k.Images = override(k.Images, image)
	}
	if len(spec.BuildMetadata) > 0 {
		k.BuildMetadata = spec.BuildMetadata
	}
	return nil
}

// override adds an image to the images of a kustomization file. If there is an entry with the same
// name, override changes the fields that the image sets. Tag and digest change together, since a
// stale digest would win over a new tag.
func override(images []types.Image, image Image) []types.Image {
	i := slices.IndexFunc(images, func(present types.Image) bool { return present.Name == image.Name })
	if i < 0 {
		return append(images, types.Image{Name: image.Name, NewName: image.NewName, NewTag: image.NewTag, Digest: image.Digest})
	}
	setIfGiven(&images[i].NewName, image.NewName)
	if image.NewTag != "" || image.Digest != "" {
		images[i].NewTag, images[i].Digest = image.NewTag, image.Digest
	}
	return images
}

func setIfGiven(field *string, value string) {
	if value != "" {
		*field = value
	}
}

// selector returns the target in the form of kustomize.
func (t *Target) selector() *types.Selector {
	if t == nil {
		return nil
	}
	return &types.Selector{
		ResId: resid.ResId{
			Gvk:  resid.Gvk{Group: t.Group, Version: t.Version, Kind: t.Kind},
			Name: t.Name, Namespace: t.Namespace,
		},
		LabelSelector: t.LabelSelector, AnnotationSelector: t.AnnotationSelector,
	}
}
