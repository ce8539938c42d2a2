"""Numbers that the paper prints, for comparison. Dice and correlations in per cent; clients 1 to 6."""

CLIENTS = tuple(f"site{i}" for i in range(1, 7))
"""The names of the paper's clients in fedce, in the paper's order."""
# Table 1: Dice of each client; the appendix repeats it with the deviation over three seeds.
DICE = {
    "fundus6": {
        "standalone": (86.69, 85.51, 86.21, 89.91, 79.77, 90.98),
        "fedavg": (81.34, 85.21, 83.28, 88.16, 40.81, 90.79),
        "qfedavg": (86.24, 86.97, 87.37, 89.13, 44.68, 90.72),
        "cffl": (85.72, 86.29, 86.96, 88.62, 41.12, 90.16),
        "fedci": (87.02, 86.93, 87.35, 88.53, 40.99, 90.22),
        "cgsv": (83.46, 85.57, 85.47, 88.48, 33.79, 91.01),
        "fedce": (86.73, 87.45, 87.51, 89.26, 57.30, 90.25),
        "fedce-sum": (87.22, 87.36, 87.93, 89.66, 54.42, 90.92),
    },
    "prostate6": {
        "standalone": (91.23, 84.59, 87.57, 87.37, 86.70, 89.25),
        "fedavg": (91.10, 84.59, 89.02, 89.09, 83.87, 89.27),
        "qfedavg": (90.94, 85.60, 89.28, 89.18, 84.27, 88.67),
        "cffl": (91.01, 85.49, 89.24, 88.98, 82.11, 88.17),
        "fedci": (91.21, 85.40, 89.49, 88.37, 83.96, 88.49),
        "cgsv": (91.15, 84.90, 89.27, 88.09, 83.47, 89.16),
        "fedce": (91.43, 85.79, 89.21, 89.13, 85.68, 88.62),
        "fedce-sum": (91.18, 85.54, 89.59, 89.22, 84.99, 88.79),
    },
}
# Table 2: Pearson, its p and Euclid against Standalone. These numbers do not follow from Table 1.
FAIRNESS = {
    "fundus6": {
        "fedavg": (88.82, 1.8e-2, 38.94),
        "qfedavg": (87.02, 2.4e-2, 38.96),
        "cffl": (84.53, 3.4e-1, 38.96),
        "fedci": (85.69, 2.9e-2, 48.42),
        "cgsv": (87.47, 2.3e-2, 49.47),
        "fedce": (88.94, 1.8e-2, 24.57),
        "fedce-sum": (89.11, 1.7e-2, 24.69),
    },
    "prostate6": {
        "fedavg": (88.67, 1.9e-2, 3.31),
        "qfedavg": (91.69, 1.0e-2, 2.61),
        "cffl": (92.47, 8.3e-3, 2.46),
        "fedci": (93.57, 6.1e-3, 2.25),
        "cgsv": (87.71, 2.2e-2, 3.45),
        "fedce": (98.25, 4.6e-4, 1.09),
        "fedce-sum": (97.15, 1.2e-3, 1.41),
    },
}
# Table 3: Pearson, Euclid and cosine of the contributions against leave-one-out.
AGREEMENT = {
    "fundus6": {
        "fedavg": (-39.76, 0.55, 0.26),
        "qfedavg": (63.28, 0.31, 0.57),
        "cffl": (0.90, 0.45, 0.47),
        "fedci": (-12.36, 0.37, 0.53),
        "cgsv": (-44.50, 0.57, 0.22),
        "fedce": (94.93, 0.17, 0.82),
        "fedce-sum": (96.34, 0.22, 0.73),
    },
    "prostate6": {
        "fedavg": (3.01, 0.62, 0.52),
        "qfedavg": (63.35, 0.59, 0.57),
        "cffl": (75.44, 0.49, 0.74),
        "fedci": (-0.31, 0.61, 0.53),
        "cgsv": (-1.85, 0.63, 0.50),
        "fedce": (93.12, 0.49, 0.75),
        "fedce-sum": (93.53, 0.53, 0.69),
    },
}
# Appendix: shares by leave-one-out, and of training samples.
LEAVE_ONE_OUT = {
    "fundus6": (15.00, 9.50, 12.00, 15.00, 44.00, 5.50),
    "prostate6": (20.13, 2.19, 1.74, 2.09, 68.47, 4.68),
}
# Appendix: points of Dice that are lost without each client, by class; the prostate data have one class.
LEAVE_ONE_OUT_DROPS = {
    "fundus6": {"disc": (2.59, 1.17, 0.97, 2.02, 6.91, 0.00), "cup": (1.44, 1.29, 2.25, 1.92, 4.84, 1.45)},
}
# Fig. 6: the client that leaves, and the limit below which all changes of the others' shares stay, in points.
SHIFT = {"fundus6": ("site5", 1.0)}
SAMPLES = {
    "fundus6": (5.52, 10.83, 5.19, 25.41, 8.84, 44.20),
    "prostate6": (16.27, 10.16, 11.87, 10.33, 16.61, 34.76),
}
SETTINGS = "256x256 pixels, 200 rounds, 3 seeds, real images"
