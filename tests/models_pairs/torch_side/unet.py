import torch
from torch import nn


def double_conv(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1),
        nn.GroupNorm(4, outside),
        nn.ReLU(inplace=True),
        nn.Conv2d(outside, outside, 3, padding=1),
        nn.GroupNorm(4, outside),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, *, width: int = 8, classes: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.down1 = double_conv(3, width)
        self.down2 = double_conv(width, 2 * width)
        self.pool = nn.MaxPool2d(2)
        self.middle = double_conv(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.dec2 = double_conv(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.dec1 = double_conv(2 * width, width)
        self.final = nn.Conv2d(width, classes, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        one = self.down1(image)
        two = self.down2(self.pool(one))
        x = self.middle(self.pool(two))
        x = self.dec2(torch.cat([two, self.up2(x)], dim=1))
        x = self.dec1(torch.cat([one, self.up1(x)], dim=1))
        return self.final(x)
