// A cluster of Azure Kubernetes Service for Forebay's operator, and a registry for its image.
// It has no GPU nodes: those are what Forebay obtains. How to use it: docs/install.md, "On AKS".

@description('Name of the cluster, and start of its DNS name.')
@minLength(1)
@maxLength(54)
param clusterName string = 'forebay'

@description('Region of the cluster and the registry.')
param location string = resourceGroup().location

@description('Kubernetes version. Forebay supports 1.34 to 1.36.')
param kubernetesVersion string = '1.34'

@description('Size of the nodes that run the operator and the cluster\'s own pods.')
param nodeSize string = 'Standard_D2s_v5'

@description('Number of those nodes: two, so that a standby runs on another node than the leader.')
@minValue(1)
param nodeCount int = 2

@description('Name of the container registry: letters and digits, unique in Azure.')
@minLength(5)
@maxLength(50)
param registryName string

// The built-in role AcrPull.
var pullRole = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '7f951dda-4ed3-4680-a7ca-43fe172d538d')

resource registry 'Microsoft.ContainerRegistry/registries@2023-07-01' = {
  name: registryName
  location: location
  sku: {
    name: 'Basic'
  }
  properties: {
    adminUserEnabled: false
  }
}

resource cluster 'Microsoft.ContainerService/managedClusters@2024-05-01' = {
  name: clusterName
  location: location
  identity: {
    type: 'SystemAssigned'
  }
  properties: {
    dnsPrefix: clusterName
    kubernetesVersion: kubernetesVersion
    enableRBAC: true
    oidcIssuerProfile: {
      enabled: true
    }
    agentPoolProfiles: [
      {
        name: 'system'
        mode: 'System'
        type: 'VirtualMachineScaleSets'
        osType: 'Linux'
        vmSize: nodeSize
        count: nodeCount
      }
    ]
    networkProfile: {
      networkPlugin: 'azure'
      networkPluginMode: 'overlay'
      networkDataplane: 'cilium'
      networkPolicy: 'cilium'
    }
  }
}

resource pull 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(registry.id, cluster.id, pullRole)
  scope: registry
  properties: {
    principalId: cluster.properties.identityProfile.kubeletidentity.objectId
    principalType: 'ServicePrincipal'
    roleDefinitionId: pullRole
  }
}

output clusterName string = cluster.name
output registry string = registry.properties.loginServer
