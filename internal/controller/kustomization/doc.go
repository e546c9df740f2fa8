// Package kustomization reconciles Kustomizations: it builds manifests from the artifact of a
// source, and applies them as a ServiceAccount of the tenant.
//
// A reconciliation has these steps:
//
//  1. Find the account and the artifact.
//  2. Read the account, and the variables of spec.postBuild as the account.
//  3. If artifact, spec and variables are those of the last time, compare the objects' versions. If
//     nobody has changed the objects, the reconciliation ends here.
//  4. Download the artifact, and build it in a confined child.
//  5. Apply the manifests. Before the first object is stored, write its name to status.inventory.
//  6. Delete the objects that left the inventory.
//
// The program's cache does not have the inventories. After a restart, each inventory is read once.
package kustomization
